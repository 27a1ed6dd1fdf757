#include "ps/log/sequencer.h"

#include <chrono>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ps/log/follow_proto.h"
#include "ps/replication/replicator.h"
#include "ps/replication/sequencer_feed.h"

namespace cairn::ps {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

std::string ToText(const std::vector<Gradient>& gradients) {
  return absl::StrJoin(gradients, " ", [](std::string* out, const Gradient& gradient) {
    absl::StrAppend(out, gradient.key.worker, ".", gradient.key.incarnation, ".", gradient.key.step);
  });
}

std::string ToText(const LogEntry& entry) {
  std::string known;
  for (const auto& [variable, sums] : entry.known) {
    absl::StrAppend(&known, ", ", variable, " ", sums.gradient, " ", sums.values, " ", sums.direction);
  }
  if (const auto* apply = std::get_if<Apply>(&entry.action)) {
    return absl::StrCat(entry.index, ": v", apply->version, " of ", ToText(apply->contributors), known);
  }
  if (const auto* measure = std::get_if<Measure>(&entry.action)) {
    return absl::StrCat(entry.index, ": measure ",
                        measure->norms == optim::Norms::kLayer ? "layer" : "gradient", " v", measure->version,
                        " of ", ToText(measure->contributors), known);
  }
  if (const auto* refuse = std::get_if<Refuse>(&entry.action)) {
    return absl::StrCat(entry.index, ": refuse ", refuse->key.worker, ".", refuse->key.incarnation, ".",
                        refuse->key.step);
  }
  if (const auto* marker = std::get_if<Marker>(&entry.action))
    return absl::StrCat(entry.index, ": marker ", marker->token);
  const auto& config_change = std::get<ConfigChange>(entry.action);
  if (!config_change.groups.empty()) {
    return absl::StrCat(entry.index, ": group 0 at ", *config_change.groups[0].learning_rate);
  }
  return absl::StrCat(entry.index, ": ",
                      config_change.end ? "end" : absl::StrCat("rate ", *config_change.learning_rate));
}

class RecordingLog final : public LogSink {
 public:
  void Append(const LogEntry& entry) override {
    entries.push_back(ToText(entry));
    if (const auto* apply = std::get_if<Apply>(&entry.action)) {
      for (const Gradient& gradient : apply->contributors) EXPECT_THAT(gradient.groups, IsEmpty());
    }
  }
  void Flush() override { flushed = entries.size(); }
  void End(const absl::Status&) override { ended = true; }
  std::vector<std::string> entries;
  size_t flushed = 0;
  bool ended = false;
};

Gradient Push(int worker, uint64_t incarnation, int64_t step, int64_t base_version = 0) {
  return {.key = {.worker = worker, .incarnation = incarnation, .step = step},
          .base_version = base_version,
          .examples = 1};
}

// A push of the chief that sets the learning rate of group 0.
Gradient PushWithRate(float rate, int64_t step, int64_t base_version = 0) {
  Gradient gradient = Push(0, 1, step, base_version);
  gradient.groups = {{.learning_rate = rate}};
  return gradient;
}

// Two workers of a synchronous job on two servers.
class SequencerTest : public testing::Test {
 protected:
  SequencerTest()
      : sequencer_(MakePolicy({.mode = "sync", .expected_workers = 2}).value(), /*num_servers=*/2) {
    EXPECT_EQ(sequencer_.Subscribe(0, 1, sink_), absl::OkStatus());
    sequencer_.Join(0, 1);
    sequencer_.Join(1, 1);
  }
  void StageOnBoth(const Gradient& gradient) {
    sequencer_.OnStaged(0, gradient);
    sequencer_.OnStaged(1, gradient);
  }
  std::vector<std::string>& log() { return sink_->entries; }

  Sequencer sequencer_;
  std::shared_ptr<RecordingLog> sink_ = std::make_shared<RecordingLog>();
};

TEST_F(SequencerTest, APushCountsWhenEveryServerHoldsIt) {
  StageOnBoth(Push(0, 1, 1));
  sequencer_.OnStaged(0, Push(1, 1, 1));
  EXPECT_THAT(log(), IsEmpty());
  sequencer_.OnStaged(1, Push(1, 1, 1));
  EXPECT_THAT(log(), ElementsAre("1: v1 of 0.1.1 1.1.1"));
  EXPECT_EQ(sink_->flushed, 1u);
  EXPECT_EQ(sequencer_.version(), 1);
}

TEST_F(SequencerTest, AServerThatReportsTwiceIsStillOneServer) {
  StageOnBoth(Push(0, 1, 1));
  sequencer_.OnStaged(0, Push(1, 1, 1));
  sequencer_.OnStaged(0, Push(1, 1, 1));
  EXPECT_THAT(log(), IsEmpty());
}

TEST_F(SequencerTest, ReportsOfDecidedPushesAreIgnored) {
  StageOnBoth(Push(0, 1, 1));
  StageOnBoth(Push(1, 1, 1));
  sequencer_.OnStaged(1, Push(1, 1, 1));  // from a follower that has reconnected
  EXPECT_EQ(log().size(), 1u);
  EXPECT_THAT(sequencer_.WaitingFor(), ElementsAre(0, 1));
}

TEST_F(SequencerTest, APartialPushOfALeavingWorkerIsRefusedOnAllServers) {
  StageOnBoth(Push(0, 1, 1));
  sequencer_.OnStaged(1, Push(1, 1, 1));
  sequencer_.Leave(1, 1);
  EXPECT_THAT(log(), ElementsAre("1: refuse 1.1.1", "2: v1 of 0.1.1"));
  sequencer_.OnStaged(0, Push(1, 1, 1));  // the rest of it arrives late
  EXPECT_EQ(log().back(), "3: refuse 1.1.1");
}

TEST_F(SequencerTest, ANewIncarnationRefusesPartialPushesOfTheOldOne) {
  sequencer_.OnStaged(0, Push(1, 1, 1));
  sequencer_.Join(1, 2);
  EXPECT_THAT(log(), ElementsAre("1: refuse 1.1.1"));
  sequencer_.OnStaged(1, Push(1, 1, 1));
  EXPECT_EQ(log().back(), "2: refuse 1.1.1");
  sequencer_.Join(1, 1);  // overtaken by incarnation 2
  StageOnBoth(Push(0, 1, 1));
  StageOnBoth(Push(1, 2, 1));
  EXPECT_EQ(log().back(), "3: v1 of 0.1.1 1.2.1");
}

TEST_F(SequencerTest, APushOfANonMemberIsRefused) {
  sequencer_.OnStaged(0, Push(5, 1, 1));
  EXPECT_THAT(log(), ElementsAre("1: refuse 5.1.1"));
}

TEST_F(SequencerTest, AMarkerIsInTheLogBetweenItsRounds) {
  StageOnBoth(Push(0, 1, 1));
  StageOnBoth(Push(1, 1, 1));
  EXPECT_TRUE(sequencer_.WriteMarker({.token = "here"}).ok());
  StageOnBoth(Push(0, 1, 2, 1));
  StageOnBoth(Push(1, 1, 2, 1));
  EXPECT_THAT(log(), ElementsAre("1: v1 of 0.1.1 1.1.1", "2: marker here", "3: v2 of 0.1.2 1.1.2"));
}

TEST_F(SequencerTest, AConfigChangeIsInTheLogOnce) {
  ASSERT_TRUE(sequencer_.ChangeConfig(1, 1, {.learning_rate = 0.5f}).ok());
  ASSERT_TRUE(sequencer_.ChangeConfig(1, 1, {.learning_rate = 0.5f}).ok()) << "a repeat";
  StageOnBoth(Push(0, 1, 1));
  ASSERT_TRUE(sequencer_.ChangeConfig(1, 2, {.end = true}).ok());
  ASSERT_TRUE(sequencer_.ChangeConfig(1, 1, {.learning_rate = 0.5f}).ok()) << "a late repeat";
  StageOnBoth(Push(1, 1, 1));
  EXPECT_THAT(log(), ElementsAre("1: rate 0.5", "2: end", "3: refuse 0.1.1", "4: refuse 1.1.1"));
  EXPECT_EQ(sink_->flushed, 4u);
}

TEST_F(SequencerTest, OnlyTheCurrentChiefMayChangeTheConfig) {
  sequencer_.Join(0, 2);
  EXPECT_EQ(sequencer_.ChangeConfig(1, 7, {.end = true}).code(), absl::StatusCode::kAborted);
  ASSERT_TRUE(sequencer_.ChangeConfig(2, 1, {.learning_rate = 0.5f}).ok())
      << "the numbers of a new chief start over";
  sequencer_.Leave(0, 2);
  EXPECT_EQ(sequencer_.ChangeConfig(2, 2, {.end = true}).code(), absl::StatusCode::kAborted);
  EXPECT_THAT(log(), ElementsAre("1: rate 0.5"));
}

TEST_F(SequencerTest, SettingsOfGroupsDirectlyPrecedeTheUpdateThatContainsTheirPush) {
  StageOnBoth(PushWithRate(0.5f, 1));
  EXPECT_TRUE(sequencer_.WriteMarker({.token = "a"}).ok());
  EXPECT_THAT(log(), ElementsAre("1: marker a"));
  StageOnBoth(Push(1, 1, 1));
  EXPECT_THAT(log(), ElementsAre("1: marker a", "2: group 0 at 0.5", "3: v1 of 0.1.1 1.1.1"));
}

TEST_F(SequencerTest, SettingsOfARepeatedPushAreInTheLogOnce) {
  StageOnBoth(PushWithRate(0.5f, 1));
  StageOnBoth(PushWithRate(0.5f, 1));
  StageOnBoth(Push(1, 1, 1));
  StageOnBoth(PushWithRate(0.5f, 1));  // from a follower that has reconnected
  EXPECT_THAT(log(), ElementsAre("1: group 0 at 0.5", "2: v1 of 0.1.1 1.1.1"));
}

TEST_F(SequencerTest, SettingsOfARefusedPushHaveNoEffect) {
  StageOnBoth(Push(0, 1, 1));
  StageOnBoth(Push(1, 1, 1));
  StageOnBoth(PushWithRate(0.5f, 2, /*base_version=*/0));  // stale
  StageOnBoth(PushWithRate(0.25f, 3, /*base_version=*/1));
  sequencer_.Leave(0, 1);
  StageOnBoth(Push(1, 1, 2, 1));
  EXPECT_THAT(log(),
              ElementsAre("1: v1 of 0.1.1 1.1.1", "2: refuse 0.1.2", "3: refuse 0.1.3", "4: v2 of 1.1.2"));
}

TEST(AsynchronousSequencer, SettingsOfGroupsPrecedeTheUpdateOfTheirPushAlone) {
  Sequencer sequencer(MakePolicy({.mode = "async"}).value(), /*num_servers=*/1);
  const auto sink = std::make_shared<RecordingLog>();
  ASSERT_EQ(sequencer.Subscribe(0, 1, sink), absl::OkStatus());
  for (int worker : {0, 1}) sequencer.Join(worker, 1);
  sequencer.OnStaged(0, Push(1, 1, 1));
  sequencer.OnStaged(0, PushWithRate(0.5f, 1));
  sequencer.OnStaged(0, Push(1, 1, 2, 1));
  EXPECT_THAT(sink->entries,
              ElementsAre("1: v1 of 1.1.1", "2: group 0 at 0.5", "3: v2 of 0.1.1", "4: v3 of 1.1.2"));
}

// The norms of an update depend on the settings, so these come before the Measure.
TEST(MeasuringSequencer, SettingsOfGroupsPrecedeTheMeasure) {
  constexpr optim::Norms kNorms[] = {optim::Norms::kGradient};
  Sequencer sequencer(MakePolicy({.mode = "async"}).value(), /*num_servers=*/1, kNorms);
  const auto sink = std::make_shared<RecordingLog>();
  ASSERT_EQ(sequencer.Subscribe(0, 1, sink), absl::OkStatus());
  for (int worker : {0, 1}) sequencer.Join(worker, 1);
  sequencer.OnStaged(0, Push(1, 1, 1));
  sequencer.OnStaged(0, PushWithRate(0.5f, 1));
  EXPECT_THAT(sink->entries, ElementsAre("1: measure gradient v1 of 1.1.1"));
  sequencer.OnSums(0, {.index = 1, .slices = {{"a", 0, {{.gradient = 2}}}}});
  EXPECT_THAT(sink->entries, ElementsAre("1: measure gradient v1 of 1.1.1", "2: v1 of 1.1.1, a 2 0 0",
                                         "3: group 0 at 0.5", "4: measure gradient v2 of 0.1.1"));
}

TEST_F(SequencerTest, ASubscriberGetsTheLogFromItsPosition) {
  for (const char* token : {"a", "b", "c"}) EXPECT_TRUE(sequencer_.WriteMarker({.token = token}).ok());
  const auto follower = std::make_shared<RecordingLog>();
  ASSERT_EQ(sequencer_.Subscribe(1, 2, follower), absl::OkStatus());
  EXPECT_THAT(follower->entries, ElementsAre("2: marker b", "3: marker c"));
  EXPECT_EQ(follower->flushed, 2u);
  EXPECT_TRUE(sequencer_.WriteMarker({.token = "d"}).ok());
  EXPECT_EQ(follower->entries.back(), "4: marker d");
}

TEST_F(SequencerTest, ANewSubscriptionReplacesTheOldOne) {
  const auto old_link = std::make_shared<RecordingLog>(), new_link = std::make_shared<RecordingLog>();
  ASSERT_EQ(sequencer_.Subscribe(1, 1, old_link), absl::OkStatus());
  ASSERT_EQ(sequencer_.Subscribe(1, 1, new_link), absl::OkStatus());
  sequencer_.Unsubscribe(1, old_link.get());
  EXPECT_THAT(sequencer_.MissingServers(), IsEmpty());
  EXPECT_TRUE(sequencer_.WriteMarker({.token = "a"}).ok());
  EXPECT_THAT(old_link->entries, IsEmpty());
  EXPECT_THAT(new_link->entries, ElementsAre("1: marker a"));
  sequencer_.Unsubscribe(1, new_link.get());
  EXPECT_THAT(sequencer_.MissingServers(), ElementsAre(1));
}

TEST_F(SequencerTest, TheLogIsKeptUntilAllServersHaveExecutedIt) {
  for (const char* token : {"a", "b", "c"}) EXPECT_TRUE(sequencer_.WriteMarker({.token = token}).ok());
  sequencer_.OnExecuted(0, 3);
  EXPECT_EQ(sequencer_.Subscribe(1, 1, std::make_shared<RecordingLog>()), absl::OkStatus());
  sequencer_.OnExecuted(1, 2);
  const auto late = std::make_shared<RecordingLog>();
  EXPECT_EQ(sequencer_.Subscribe(1, 2, late),
            absl::FailedPreconditionError(
                "ps/1 asks for the log from entry 2, but the log here has entries 3 to 3"));
  EXPECT_EQ(sequencer_.Subscribe(1, 5, late).code(), absl::StatusCode::kFailedPrecondition)
      << "not written yet";
  EXPECT_EQ(sequencer_.Subscribe(1, 3, late), absl::OkStatus());
  EXPECT_THAT(late->entries, ElementsAre("3: marker c"));
}

TEST_F(SequencerTest, ReportsOfExecutedEntriesBeyondTheLogAreCapped) {
  EXPECT_EQ(sequencer_.Subscribe(1, 1, std::make_shared<RecordingLog>()), absl::OkStatus());
  ASSERT_TRUE(sequencer_.WriteMarker({.token = "a"}).ok());
  sequencer_.OnExecuted(1, 1000);
  sequencer_.OnExecuted(0, 1);
  ASSERT_TRUE(sequencer_.WriteMarker({.token = "b"}).ok());
  sequencer_.OnExecuted(0, 2);
  const auto again = std::make_shared<RecordingLog>();
  EXPECT_EQ(sequencer_.Subscribe(1, 2, again), absl::OkStatus());
  EXPECT_THAT(again->entries, ElementsAre("2: marker b"));
}

TEST_F(SequencerTest, AStalledServerLimitsTheEntriesOfClients) {
  for (size_t marker = 0; marker < Sequencer::kMaxUnexecuted; ++marker) {
    ASSERT_TRUE(sequencer_.WriteMarker({.token = "a"}).ok());
  }
  const int64_t written = Sequencer::kMaxUnexecuted;
  sequencer_.OnExecuted(0, written);
  const absl::Status full = sequencer_.WriteMarker({.token = "b"}).status();
  EXPECT_EQ(full, absl::ResourceExhaustedError(
                      "the log holds 16384 entries that ps/1 has not executed; the limit is 16384"));
  EXPECT_EQ(sequencer_.ChangeConfig(/*incarnation=*/1, /*number=*/1, {.learning_rate = 1.0f}), full);
  sequencer_.OnStaged(0, Push(0, /*incarnation=*/7, 1));  // by a non-member: would be refused
  EXPECT_EQ(log().size(), Sequencer::kMaxUnexecuted);
  StageOnBoth(Push(0, 1, 1));
  StageOnBoth(Push(1, 1, 1));
  EXPECT_EQ(log().back(), "16385: v1 of 0.1.1 1.1.1") << "complete pushes are still decided";
  sequencer_.OnExecuted(1, written);
  EXPECT_TRUE(sequencer_.WriteMarker({.token = "b"}).ok());
}

TEST_F(SequencerTest, PushesThatAStalledServerLacksAreNotDecided) {
  for (int64_t step = 1; step <= 100; ++step) sequencer_.OnStaged(0, Push(0, 1, step));
  EXPECT_THAT(log(), IsEmpty());
}

TEST_F(SequencerTest, AnEndedLogEndsItsSubscriptions) {
  sequencer_.End("the job is being created again");
  EXPECT_TRUE(sink_->ended);
  EXPECT_TRUE(sequencer_.WriteMarker({.token = "a"}).ok());
  EXPECT_THAT(log(), IsEmpty());
  EXPECT_EQ(sequencer_.Subscribe(1, 1, std::make_shared<RecordingLog>()),
            absl::UnavailableError("the job is being created again"));
}

TEST_F(SequencerTest, AFollowerWithAnOldEpochIsRefused) {
  ASSERT_EQ(sequencer_.Subscribe(1, 1, std::make_shared<RecordingLog>(), /*epoch=*/1), absl::OkStatus());
  EXPECT_EQ(sequencer_.Subscribe(1, 1, std::make_shared<RecordingLog>()),
            absl::UnavailableError("a backup has been promoted in place of ps/1"));
}

TEST(ReplicatedSequencer, AFollowerThatIsAheadMustLookForTheLeader) {
  Replicator replicator(
      {.shard = "ps/0", .backup = "ps/1", .origin = {}, .dial = nullptr, .capture = nullptr});
  Sequencer sequencer(MakePolicy({.mode = "sync", .expected_workers = 1}).value(), /*num_servers=*/2);
  SequencerFeed feed(sequencer, replicator);
  sequencer.ReplicateTo(&feed, /*own_server=*/0);
  EXPECT_EQ(
      sequencer.Subscribe(1, 3, std::make_shared<RecordingLog>()),
      absl::UnavailableError("ps/1 asks for the log from entry 3, but the log here has entries 1 to 0"));
}

TEST(ReplicatedSequencer, AFollowerThatIsBehindHasBeenReplaced) {
  Replicator replicator(
      {.shard = "ps/0", .backup = "ps/1", .origin = {}, .dial = nullptr, .capture = nullptr});
  Sequencer sequencer(MakePolicy({.mode = "sync", .expected_workers = 1}).value(), /*num_servers=*/2);
  SequencerFeed feed(sequencer, replicator);
  sequencer.ReplicateTo(&feed, /*own_server=*/0);
  for (const char* token : {"a", "b"}) ASSERT_TRUE(sequencer.WriteMarker({.token = token}).ok());
  ASSERT_EQ(sequencer.Subscribe(1, 1, std::make_shared<RecordingLog>(), /*epoch=*/1), absl::OkStatus());
  for (const int server : {0, 1}) sequencer.OnExecuted(server, 2);
  EXPECT_EQ(
      sequencer.Subscribe(1, 1, std::make_shared<RecordingLog>(), /*epoch=*/1),
      absl::UnavailableError("ps/1 asks for the log from entry 1, but the log here has entries 3 to 2"));
}

// One asynchronous worker on two servers, with an optimizer that takes both kinds of norms.
class MeasuringSequencerTest : public testing::Test {
 protected:
  MeasuringSequencerTest()
      : sequencer_(MakePolicy({.mode = "async"}).value(), /*num_servers=*/2,
                   {optim::Norms::kGradient, optim::Norms::kLayer}) {
    EXPECT_EQ(sequencer_.Subscribe(0, 1, sink_), absl::OkStatus());
    EXPECT_EQ(sequencer_.Subscribe(1, 1, other_sink_), absl::OkStatus());
    sequencer_.Join(0, 1);
  }
  void StageOnBoth(int64_t step) {
    for (int server : {0, 1}) sequencer_.OnStaged(server, Push(0, 1, step));
  }
  // One band of "a" on each server, in this order.
  void Report(int server, int64_t index, const optim::Squares& band) {
    sequencer_.OnSums(server, {.index = index, .slices = {{"a", server, {band}}}});
  }
  std::vector<std::string>& log() { return sink_->entries; }

  Sequencer sequencer_;
  std::shared_ptr<RecordingLog> sink_ = std::make_shared<RecordingLog>();
  std::shared_ptr<RecordingLog> other_sink_ = std::make_shared<RecordingLog>();
};

TEST_F(MeasuringSequencerTest, EachEntryOfAnUpdateHasTheTotalsOfTheOneBefore) {
  StageOnBoth(1);
  EXPECT_THAT(log(), ElementsAre("1: measure gradient v1 of 0.1.1"));
  Report(1, 1, {.gradient = 3});
  EXPECT_EQ(log().size(), 1u);
  Report(0, 1, {.gradient = 4});
  Report(0, 2, {.values = 1, .direction = 2});
  Report(1, 2, {.values = 10, .direction = 20});
  EXPECT_THAT(log(), ElementsAre("1: measure gradient v1 of 0.1.1", "2: measure layer v1 of 0.1.1, a 7 0 0",
                                 "3: v1 of 0.1.1, a 0 11 22"));
  EXPECT_EQ(sink_->flushed, 3u);
}

TEST_F(MeasuringSequencerTest, DecisionsDuringAnUpdateFollowIt) {
  StageOnBoth(1);
  EXPECT_TRUE(sequencer_.WriteMarker({.token = "here"}).ok());
  ASSERT_EQ(sequencer_.ChangeConfig(/*incarnation=*/1, /*number=*/1, {.learning_rate = 2.0f}),
            absl::OkStatus());
  StageOnBoth(2);
  EXPECT_EQ(log().size(), 1u);
  for (int64_t index : {1, 2}) {
    for (int server : {0, 1}) Report(server, index, {});
  }
  ASSERT_EQ(log().size(), 6u);
  EXPECT_EQ(log()[3], "4: marker here");
  EXPECT_THAT(log()[4], testing::StartsWith("5: "));
  EXPECT_EQ(log()[5], "6: measure gradient v2 of 0.1.2");
}

TEST_F(MeasuringSequencerTest, RepeatedSumsAndSumsOfOtherMeasuresAreIgnored) {
  StageOnBoth(1);
  Report(0, 1, {.gradient = 1});
  Report(0, 1, {.gradient = 1});
  Report(1, 7, {.gradient = 1});
  EXPECT_EQ(log().size(), 1u);
  Report(1, 1, {.gradient = 1});
  EXPECT_EQ(log().back(), "2: measure layer v1 of 0.1.1, a 2 0 0");
  Report(0, 1, {.gradient = 1});
  Report(1, 1, {.gradient = 1});
  EXPECT_EQ(log().size(), 2u);
}

TEST_F(MeasuringSequencerTest, AServerThatReportsNoSumsFailsTheJobAndIsNamed) {
  const TimePoint start = TimePoint(std::chrono::hours(1));
  EXPECT_EQ(sequencer_.CheckMeasuring(start), absl::OkStatus());
  StageOnBoth(1);
  Report(0, 1, {});
  EXPECT_THAT(sequencer_.MissingServers(), ElementsAre(1));
  EXPECT_EQ(sequencer_.CheckMeasuring(start + std::chrono::hours(1)), absl::OkStatus())
      << "the 60 s begin now";
  EXPECT_EQ(sequencer_.CheckMeasuring(start + std::chrono::hours(1) + std::chrono::seconds(59)),
            absl::OkStatus());
  EXPECT_EQ(
      sequencer_.CheckMeasuring(start + std::chrono::hours(1) + std::chrono::seconds(60)),
      absl::AbortedError("the update to version 1 has waited 60 s for the norms of the slices on ps/1"));
  Report(1, 1, {});
  EXPECT_EQ(sequencer_.CheckMeasuring(start + std::chrono::hours(2)), absl::OkStatus())
      << "the 60 s of the next Measure have not passed";
}

TEST_F(MeasuringSequencerTest, TheMinuteOfAnAbsentServerBeginsWhenItSubscribes) {
  const TimePoint start = TimePoint(std::chrono::hours(1));
  StageOnBoth(1);
  Report(0, 1, {});
  EXPECT_EQ(sequencer_.CheckMeasuring(start), absl::OkStatus());
  sequencer_.Unsubscribe(1, other_sink_.get());
  EXPECT_EQ(sequencer_.CheckMeasuring(start + std::chrono::hours(1)), absl::OkStatus());
  EXPECT_EQ(sequencer_.Subscribe(1, 1, other_sink_), absl::OkStatus());
  EXPECT_EQ(sequencer_.CheckMeasuring(start + std::chrono::hours(1)), absl::OkStatus());
  EXPECT_EQ(sequencer_.CheckMeasuring(start + std::chrono::hours(1) + std::chrono::seconds(59)),
            absl::OkStatus());
  EXPECT_EQ(sequencer_.CheckMeasuring(start + std::chrono::hours(1) + std::chrono::seconds(60)).code(),
            absl::StatusCode::kAborted);
}

TEST_F(MeasuringSequencerTest, TheMinuteOfAWaitingServerBeginsWhenItHasTheGradients) {
  TimePoint now = TimePoint(std::chrono::hours(1));
  StageOnBoth(1);
  Report(0, 1, {});
  for (int second = 0; second < 600; ++second) {
    sequencer_.OnWaiting(1, 1);
    now += std::chrono::seconds(1);
    ASSERT_EQ(sequencer_.CheckMeasuring(now), absl::OkStatus()) << second;
  }
  EXPECT_EQ(sequencer_.CheckMeasuring(now + std::chrono::seconds(59)), absl::OkStatus());
  EXPECT_EQ(sequencer_.CheckMeasuring(now + std::chrono::seconds(60)).code(), absl::StatusCode::kAborted);
}

TEST_F(MeasuringSequencerTest, OnlyServersWithoutSumsMayWaitAtTheCurrentMeasure) {
  const TimePoint start = TimePoint(std::chrono::hours(1));
  StageOnBoth(1);
  Report(0, 1, {});
  EXPECT_EQ(sequencer_.CheckMeasuring(start), absl::OkStatus());
  sequencer_.OnWaiting(0, 1);
  sequencer_.OnWaiting(1, 7);
  EXPECT_EQ(sequencer_.CheckMeasuring(start + std::chrono::seconds(60)).code(), absl::StatusCode::kAborted);
}

TEST_F(MeasuringSequencerTest, ALeaderThatWasPausedGivesTheServersAnotherMinute) {
  const TimePoint start = TimePoint(std::chrono::hours(1));
  StageOnBoth(1);
  Report(0, 1, {});
  EXPECT_EQ(sequencer_.CheckMeasuring(start), absl::OkStatus());
  sequencer_.WokeUp();
  const TimePoint awake = start + std::chrono::minutes(10);
  EXPECT_EQ(sequencer_.CheckMeasuring(awake), absl::OkStatus());
  EXPECT_EQ(sequencer_.CheckMeasuring(awake + std::chrono::seconds(59)), absl::OkStatus());
  EXPECT_EQ(sequencer_.CheckMeasuring(awake + std::chrono::seconds(60)).code(), absl::StatusCode::kAborted);
}

// A backup that takes the inputs of a sequencer.
class ReplicatedSequencerTest : public testing::Test {
 protected:
  ReplicatedSequencerTest()
      : backup_(MakePolicy({.mode = "async"}).value(), /*num_servers=*/2,
                std::vector{optim::Norms::kGradient}) {
    Take(WorkerJoined{0, 1});
  }
  // Takes an input that arrives as a message.
  void Take(const SequencerInput& input) {
    const absl::StatusOr<SequencerInput> received = FromProto(ToProto(input));
    ASSERT_EQ(received.status(), absl::OkStatus());
    EXPECT_EQ(backup_.Step(*received), absl::OkStatus());
  }
  void Stage(int64_t step) {
    for (int server : {0, 1}) Take(PushStaged{server, Push(0, 1, step)});
  }
  static Sums Found(int server, double gradient) {
    return {.index = 1, .slices = {{"a", server, {{.gradient = gradient}}}}};
  }
  void Summed(int server, double gradient) { Take(SumsReported{server, Found(server, gradient)}); }
  // The state with a Measure to which ps/1 has reported its sums.
  v1::SequencerState State() {
    v1::SequencerState state;
    for (int server : {0, 1}) state.add_executed(server);
    *state.mutable_policy() = MakePolicy({.mode = "async"}).value()->Save();
    state.set_next_index(2);
    state.mutable_measuring()->set_index(1);
    *state.mutable_measuring()->mutable_apply()->add_contributors() = ToProto(Push(0, 1, 1));
    state.mutable_measuring()->mutable_apply()->set_version(1);
    (*state.mutable_measuring()->mutable_sums())[1] = ToProto(Found(1, 3));
    return state;
  }
  std::vector<std::string> Subscribed(int64_t next_index) {
    EXPECT_EQ(backup_.Subscribe(0, next_index, sink_), absl::OkStatus());
    return sink_->entries;
  }

  Sequencer backup_;
  std::shared_ptr<RecordingLog> sink_ = std::make_shared<RecordingLog>();
};

TEST_F(ReplicatedSequencerTest, ContinuesWithTheSumsReportedBefore) {
  Stage(1);
  Summed(1, 3);
  EXPECT_THAT(Subscribed(1), ElementsAre("1: measure gradient v1 of 0.1.1"));
  backup_.OnSums(1, Found(1, 3));  // reported again to the promoted backup
  EXPECT_EQ(sink_->entries.size(), 1u);
  backup_.OnSums(0, Found(0, 4));
  EXPECT_EQ(sink_->entries.back(), "2: v1 of 0.1.1, a 7 0 0");
}

TEST_F(ReplicatedSequencerTest, SumsOfAPastMeasureAreIgnored) {
  Stage(1);
  Summed(1, 3);
  Summed(0, 4);
  Stage(2);
  EXPECT_EQ(Subscribed(1).size(), 3u);
  for (int server : {0, 1}) backup_.OnSums(server, Found(server, 4));
  EXPECT_THAT(sink_->entries, ElementsAre("1: measure gradient v1 of 0.1.1", "2: v1 of 0.1.1, a 7 0 0",
                                          "3: measure gradient v2 of 0.1.2"));
}

TEST_F(ReplicatedSequencerTest, AcceptsAStateInTheMiddleOfAMeasure) {
  ASSERT_EQ(backup_.Load(State()), absl::OkStatus());
  EXPECT_THAT(Subscribed(2), IsEmpty());
  backup_.OnSums(0, Found(0, 4));
  EXPECT_THAT(sink_->entries, ElementsAre("2: v1 of 0.1.1, a 7 0 0"));
}

TEST_F(ReplicatedSequencerTest, RefusesAnImpossibleMeasure) {
  v1::SequencerState elsewhere = State(), over = State(), complete = State(), behind_nothing = State();
  elsewhere.mutable_measuring()->set_index(7);
  over.mutable_measuring()->set_norms(1);
  (*complete.mutable_measuring()->mutable_sums())[0] = ToProto(Found(0, 4));
  behind_nothing.clear_measuring();
  behind_nothing.add_behind()->mutable_marker()->set_token("here");
  for (const v1::SequencerState& state : {elsewhere, over, complete, behind_nothing}) {
    EXPECT_EQ(backup_.Load(state), absl::InvalidArgumentError("the replicated log does not fit the job"))
        << state.DebugString();
  }
}

TEST_F(MeasuringSequencerTest, APushHasTheOldestBaseVersionOfItsParts) {
  for (int64_t step : {1, 2}) {
    StageOnBoth(step);
    for (int64_t index : {1, 2}) {
      for (int server : {0, 1}) Report(server, 3 * (step - 1) + index, {});
    }
  }
  sequencer_.OnStaged(0, Push(0, 1, 3, /*base_version=*/0));
  sequencer_.OnStaged(1, Push(0, 1, 3, /*base_version=*/2));
  EXPECT_EQ(sequencer_.counters().staleness_max, 2);
}

}  // namespace
}  // namespace cairn::ps
