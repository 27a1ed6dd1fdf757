#include "ps/shard/shard.h"

#include <optional>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/ps/pieces.h"
#include "tests/unit/ps/recording_port.h"

namespace cairn::ps {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// The answer to a push or a read; nothing while it waits.
using PushAnswer = std::optional<absl::StatusOr<PushResult>>;
using ReadAnswer = std::optional<absl::StatusOr<ReadResult>>;

// A shard of two elements, under SGD at rate 1. The test acts as its sequencer.
class ShardTest : public testing::Test {
 protected:
  ShardTest() : shard_({.slices = Vectors({{"a", 1}, {"b", 1}}), .optimizer = Sgd(1), .final_version = 3}) {
    shard_.ConnectTo(&port_);
  }

  static PushKey Key(int worker, int64_t step, uint64_t incarnation = 1) {
    return {.worker = worker, .incarnation = incarnation, .step = step};
  }
  static Gradient From(const PushKey& key, int64_t base = 0) {
    return {.key = key, .base_version = base, .examples = 1};
  }

  // `answer` is set when the answer comes.
  void Push(const PushKey& key, std::vector<float> values, PushAnswer& answer) {
    auto push = shard_.BeginPush({.gradient = From(key), .read_values = true});
    EXPECT_EQ(push->AddChunk(ChunkAt(0), Bytes(std::move(values))), absl::OkStatus());
    shard_.FinishPush(std::move(push),
                      [&answer](absl::StatusOr<PushResult> result) { answer = std::move(result); });
  }
  void Read(const std::string& marker, ReadAnswer& answer) {
    shard_.Read(marker, [&answer](absl::StatusOr<ReadResult> result) { answer = std::move(result); });
  }
  void Decide(LogEntry::Action action) {
    shard_.Append({shard_.next_index(), std::move(action)});
    shard_.Flush();
  }
  void ApplyRound(int64_t version, const std::vector<PushKey>& keys) {
    Apply apply = {.version = version, .contributors = {}};
    for (const PushKey& key : keys) apply.contributors.push_back(From(key, version - 1));
    Decide(std::move(apply));
  }

  RecordingPort port_;
  Shard shard_;
  PushAnswer first_, second_, third_;
};

TEST_F(ShardTest, APushIsReportedWhenCompleteAndAnsweredByItsDecision) {
  Push(Key(0, 1), {1, 2}, first_);
  EXPECT_THAT(port_.staged, ElementsAre(Key(0, 1)));
  EXPECT_FALSE(first_.has_value());
  ApplyRound(1, {Key(0, 1)});
  ASSERT_TRUE(first_.has_value());
  EXPECT_EQ((*first_)->outcome, v1::OUTCOME_ACCEPTED);
  EXPECT_EQ((*first_)->version, 1);
  EXPECT_FALSE((*first_)->duplicate);
  EXPECT_THAT(ToVector((*first_)->values), ElementsAre(-1, -2));
  EXPECT_EQ(port_.executed, 1);
}

TEST_F(ShardTest, AnIncompletePushIsRefusedWithoutEffect) {
  Push(Key(0, 1), {1}, first_);
  EXPECT_EQ(first_->status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(first_->status().message()), HasSubstr("step 1: 1 of 2 elements received"));
  EXPECT_THAT(port_.staged, IsEmpty());
  Push(Key(0, 1), {1, 1}, second_);
  ApplyRound(1, {Key(0, 1)});
  EXPECT_FALSE((*second_)->duplicate);
}

TEST_F(ShardTest, ARepeatOfAPushUnderWayGetsTheSameAnswer) {
  Push(Key(0, 1), {1, 1}, first_);
  Push(Key(0, 1), {9, 9}, second_);
  EXPECT_EQ(port_.staged.size(), 1u) << "reported once";
  ApplyRound(1, {Key(0, 1)});
  EXPECT_FALSE((*first_)->duplicate);
  EXPECT_TRUE((*second_)->duplicate);
  EXPECT_EQ((*second_)->outcome, v1::OUTCOME_ACCEPTED);
  EXPECT_THAT(ToVector((*second_)->values), Each(-1)) << "counted once, as it came first";
  EXPECT_EQ(shard_.duplicates(), 1);
}

TEST_F(ShardTest, ARepeatOfADecidedPushIsAnsweredAtOnceWithoutValues) {
  Push(Key(0, 1), {1, 1}, first_);
  ApplyRound(1, {Key(0, 1)});
  Push(Key(0, 1), {1, 1}, second_);
  EXPECT_TRUE((*second_)->duplicate);
  EXPECT_EQ((*second_)->outcome, v1::OUTCOME_ACCEPTED);
  EXPECT_EQ((*second_)->version, 1);
  EXPECT_EQ((*second_)->values.data, nullptr) << "the values may be of a later version";
  EXPECT_THAT(ToVector(shard_.store().current()), Each(-1));
}

TEST_F(ShardTest, AStepOlderThanTheLastDecidedIsRejected) {
  Push(Key(0, 2), {1, 1}, first_);
  ApplyRound(1, {Key(0, 2)});
  Push(Key(0, 1), {1, 1}, second_);
  EXPECT_EQ((*second_)->outcome, v1::OUTCOME_REJECTED);
}

TEST_F(ShardTest, AStepOvertakenByALaterOneUnderWayIsRejected) {
  Push(Key(0, 2), {1, 1}, first_);
  Push(Key(0, 1), {1, 1}, second_);
  ASSERT_TRUE(second_.has_value());
  EXPECT_EQ((*second_)->outcome, v1::OUTCOME_REJECTED);
  ApplyRound(1, {Key(0, 2)});
  EXPECT_EQ((*first_)->outcome, v1::OUTCOME_ACCEPTED);
}

TEST_F(ShardTest, APushOfAnOldIncarnationIsRejected) {
  Push(Key(0, 1, /*incarnation=*/2), {1, 1}, first_);
  Push(Key(0, 5, /*incarnation=*/1), {1, 1}, second_);
  EXPECT_EQ((*second_)->outcome, v1::OUTCOME_REJECTED);
}

TEST_F(ShardTest, ADeferredAnswerHasTheValuesAtItsRelease) {
  Push(Key(0, 1), {1, 1}, first_);
  Push(Key(1, 1), {2, 2}, second_);
  Decide(Apply{.version = 1, .contributors = {From(Key(0, 1))}, .deferred = true});
  EXPECT_FALSE(first_.has_value());
  EXPECT_THAT(ToVector(shard_.store().current()), Each(-1)) << "applied although the answer is deferred";
  EXPECT_THAT(shard_.StagedGradients(), ElementsAre(From(Key(1, 1)))) << "that push is decided";
  Push(Key(0, 1), {1, 1}, third_);
  EXPECT_FALSE(third_.has_value()) << "a repeat does not bypass the limit";
  Decide(Apply{.version = 2, .contributors = {From(Key(1, 1))}});
  EXPECT_FALSE(first_.has_value());
  Decide(Release{Key(0, 1)});
  ASSERT_TRUE(first_.has_value() && third_.has_value());
  EXPECT_EQ((*first_)->outcome, v1::OUTCOME_ACCEPTED);
  EXPECT_EQ((*first_)->version, 2);
  EXPECT_EQ((*first_)->staleness, 0);
  EXPECT_THAT(ToVector((*first_)->values), Each(-3));
  EXPECT_TRUE((*third_)->duplicate);
  EXPECT_THAT(ToVector((*third_)->values), Each(-3));
}

TEST_F(ShardTest, ARefusalReportsOutcomeStalenessAndTheCurrentValues) {
  Push(Key(0, 1), {1, 1}, first_);
  Push(Key(1, 1), {8, 8}, second_);
  ApplyRound(1, {Key(0, 1)});
  Decide(Refuse{.key = Key(1, 1), .reason = Refuse::Reason::kStale, .staleness = 1});
  EXPECT_EQ((*second_)->outcome, v1::OUTCOME_STALE);
  EXPECT_EQ((*second_)->staleness, 1);
  EXPECT_THAT(ToVector((*second_)->values), Each(-1));
}

TEST_F(ShardTest, ADecisionThatPrecedesItsPushAnswersItOnArrival) {
  Decide(Refuse{.key = Key(0, 1), .reason = Refuse::Reason::kNotAMember});
  Push(Key(0, 1), {1, 1}, first_);
  EXPECT_EQ((*first_)->outcome, v1::OUTCOME_REJECTED);
  EXPECT_THAT(port_.staged, IsEmpty());
}

TEST_F(ShardTest, TheLastVersionIsReportedAsFinished) {
  for (int step = 1; step <= 3; ++step) {
    Push(Key(0, step), {1, 1}, first_);
    ApplyRound(step, {Key(0, step)});
    EXPECT_EQ((*first_)->finished, step == 3);
  }
}

TEST_F(ShardTest, AnEarlierEndIsReportedInLaterAnswers) {
  Push(Key(0, 1), {1, 1}, first_);
  ApplyRound(1, {Key(0, 1)});
  EXPECT_FALSE((*first_)->finished);
  Push(Key(1, 1), {1, 1}, second_);
  Decide(ConfigChange{.end = true});
  Decide(Refuse{.key = Key(1, 1), .reason = Refuse::Reason::kFinished});
  EXPECT_EQ((*second_)->outcome, v1::OUTCOME_FINISHED);
  EXPECT_TRUE((*second_)->finished);
  ReadAnswer read;
  Read("", read);
  EXPECT_TRUE((*read)->finished);
  EXPECT_EQ((*read)->values.version, 1);
  Push(Key(0, 1), {1, 1}, third_);  // the answer was lost
  EXPECT_TRUE((*third_)->finished);
}

TEST_F(ShardTest, AChangedLearningRateAppliesToLaterUpdates) {
  Push(Key(0, 1), {1, 2}, first_);
  ApplyRound(1, {Key(0, 1)});
  Decide(ConfigChange{.learning_rate = 0.5f});
  Push(Key(0, 2), {1, 2}, first_);
  ApplyRound(2, {Key(0, 2)});
  EXPECT_THAT(ToVector(shard_.store().current()), ElementsAre(-1.5, -3));
  EXPECT_FALSE((*first_)->finished);
}

TEST_F(ShardTest, AReadAtAMarkerReturnsTheValuesOfThatPoint) {
  ReadAnswer before, after, now;
  Read("m", before);  // before the log gets there
  Push(Key(0, 1), {1, 1}, first_);
  ApplyRound(1, {Key(0, 1)});
  EXPECT_FALSE(before.has_value());
  Decide(Marker{.token = "m"});
  Decide(Marker{.token = "n"});
  Push(Key(0, 2), {1, 1}, first_);
  ApplyRound(2, {Key(0, 2)});
  Read("n", after);  // after the log got there
  Read("", now);
  EXPECT_EQ((*before)->values.version, 1);
  EXPECT_THAT(ToVector((*before)->values), Each(-1));
  EXPECT_EQ((*after)->values.version, 1);
  EXPECT_EQ((*now)->values.version, 2);
}

TEST_F(ShardTest, AReaderTooLateForItsMarkerIsRefused) {
  for (int64_t version = 1; version <= 100; ++version) {
    Push(Key(0, version), {1, 1}, first_);
    ApplyRound(version, {Key(0, version)});
    Decide(Marker{.token = absl::StrCat(version)});
  }
  ReadAnswer late, recent;
  Read("1", late);
  Read("100", recent);
  ASSERT_TRUE(late.has_value());
  EXPECT_EQ(late->status().code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(recent->ok());
}

TEST_F(ShardTest, ManyMarkersOfOneVersionAreAllKept) {
  for (int marker = 0; marker < 300; ++marker) Decide(Marker{.token = absl::StrCat(marker)});
  ReadAnswer first;
  Read("0", first);
  ASSERT_TRUE(first.has_value());
  EXPECT_TRUE(first->ok()) << first->status();
}

TEST_F(ShardTest, AWriteTakesEffectBetweenTwoEntriesOfTheLog) {
  Push(Key(0, 1), {1, 1}, first_);
  ApplyRound(1, {Key(0, 1)});
  auto data = std::make_unique<Accumulator>(shard_.store().pool());
  ASSERT_TRUE(data->Add(ChunkAt(1), Bytes({50})).ok());
  int64_t written_at = -1;
  shard_.Write(std::move(data), {}, [&](absl::StatusOr<int64_t> version) { written_at = version.value(); });
  EXPECT_EQ(written_at, 1);
  Push(Key(0, 2), {1, 1}, first_);
  ApplyRound(2, {Key(0, 2)});
  EXPECT_THAT(ToVector(shard_.store().current()), ElementsAre(-2, 49));
}

TEST_F(ShardTest, AFailureAnswersWaitingAndLaterRequests) {
  ReadAnswer waiting, coming;
  Push(Key(0, 1), {1, 1}, first_);
  Push(Key(0, 1), {1, 1}, second_);
  Read("m", waiting);
  shard_.Fail(absl::InternalError("the reason"));
  shard_.Fail(absl::InternalError("a later one"));
  Push(Key(1, 1), {1, 1}, third_);
  Read("", coming);
  for (const PushAnswer* answer : {&first_, &second_, &third_})
    EXPECT_EQ(answer->value().status(), absl::InternalError("the reason"));
  for (const ReadAnswer* answer : {&waiting, &coming})
    EXPECT_EQ(answer->value().status(), absl::InternalError("the reason"));
}

TEST_F(ShardTest, AnUpdateWithAMissingPushFailsTheJob) {
  ApplyRound(1, {Key(4, 1)});
  EXPECT_EQ(shard_.failure().code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(shard_.failure().message()), HasSubstr("push of worker 4"));
  EXPECT_EQ(shard_.store().current().version, 0);
}

TEST_F(ShardTest, AMeasureWithoutNormsFailsTheJob) {
  Push(Key(0, 1), {1, 2}, first_);
  Decide(Measure{.version = 1, .contributors = {From(Key(0, 1))}, .norms = optim::Norms::kGradient});
  EXPECT_EQ(first_->status(),
            absl::InternalError("ps/0 made an invalid decision: entry 1 of the log measures an update, "
                                "but the job's optimizer takes no norms"));
  EXPECT_THAT(port_.sums, IsEmpty());
}

TEST_F(ShardTest, AnUpdateThatSkipsAVersionFailsTheJob) {
  Push(Key(0, 1), {1, 2}, first_);
  ApplyRound(2, {Key(0, 1)});
  EXPECT_EQ(first_->status(),
            absl::InternalError("ps/0 made an invalid decision: entry 1 of the log belongs to the update to "
                                "version 2, but follows version 0"));
  EXPECT_EQ(shard_.store().current().version, 0);
}

TEST_F(ShardTest, AnUpdateWithAPushWithoutValuesFailsTheJob) {
  auto push = shard_.BeginPush({.gradient = {.key = Key(0, 1), .base_version = 0, .examples = 0}});
  shard_.FinishPush(std::move(push),
                    [this](absl::StatusOr<PushResult> result) { first_ = std::move(result); });
  ApplyRound(1, {Key(0, 1)});  // with one example
  EXPECT_EQ(first_->status().code(), absl::StatusCode::kInternal);
  EXPECT_THAT(
      std::string(first_->status().message()),
      HasSubstr("version 1 uses the push of worker 0 (incarnation 1), step 1, computed from 1 examples"));
}

TEST_F(ShardTest, UndecidedPushesCanBeReportedAgain) {
  Push(Key(0, 1), {1, 1}, first_);
  Push(Key(1, 1), {1, 1}, second_);
  ApplyRound(1, {Key(0, 1)});
  EXPECT_THAT(shard_.StagedGradients(), ElementsAre(From(Key(1, 1))));
  EXPECT_EQ(shard_.next_index(), 2);
}

TEST_F(ShardTest, WaitingReadersOfMarkersAreBounded) {
  std::vector<ReadAnswer> answers(MarkerTable::kMaxAwaiting);
  for (ReadAnswer& answer : answers) Read("m", answer);
  ReadAnswer refused;
  Read("m", refused);
  ASSERT_TRUE(refused.has_value());
  EXPECT_EQ(refused->status(),
            absl::ResourceExhaustedError("marker m: 1024 reads wait for markers, at most 1024"));
  Decide(Marker{.token = "m"});
  for (const ReadAnswer& answer : answers) EXPECT_TRUE(answer->ok());
  ReadAnswer next;
  Read("n", next);
  EXPECT_FALSE(next.has_value()) << "it waits";
}

TEST_F(ShardTest, WaitingRepeatsOfAPushAreBounded) {
  Push(Key(0, 1), {1, 2}, first_);
  std::vector<PushAnswer> repeats(PushTable::kMaxRepeats);
  for (PushAnswer& repeat : repeats) Push(Key(0, 1), {1, 2}, repeat);
  Push(Key(0, 1), {1, 2}, second_);
  ASSERT_TRUE(second_.has_value());
  EXPECT_EQ(second_->status(),
            absl::ResourceExhaustedError("push of worker 0 (incarnation 1), step 1: 16 repeats of it wait"));
  ApplyRound(1, {Key(0, 1)});
  for (const PushAnswer& repeat : repeats) EXPECT_TRUE(repeat->ok());
}

TEST_F(ShardTest, UndecidedPushesAreBounded) {
  const auto push_nothing = [&](int64_t step, PushAnswer& answer) {
    auto push = shard_.BeginPush({.gradient = {.key = Key(0, step), .base_version = 0, .examples = 0}});
    shard_.FinishPush(std::move(push),
                      [&answer](absl::StatusOr<PushResult> result) { answer = std::move(result); });
  };
  std::vector<PushAnswer> answers(PushTable::kMaxStaged);
  for (size_t i = 0; i < answers.size(); ++i) push_nothing(static_cast<int64_t>(i) + 1, answers[i]);
  push_nothing(static_cast<int64_t>(answers.size()) + 1, first_);
  ASSERT_TRUE(first_.has_value());
  EXPECT_EQ(first_->status(), absl::ResourceExhaustedError(
                                  "push of worker 0 (incarnation 1), step 4097: 4096 pushes wait for their "
                                  "decision, at most 4096"));
  EXPECT_FALSE(answers.back().has_value());
  shard_.Fail(absl::InternalError("the end"));  // answers them
}

// Each reply appends the next entry, so the queue is not empty until the end.
TEST_F(ShardTest, ExecutionIsReportedEvenIfTheQueueIsNeverEmpty) {
  constexpr int kMarkers = 600;
  int64_t reported_before_the_end = 0;
  for (int marker = 0; marker < kMarkers; ++marker) {
    shard_.Read(absl::StrCat(marker), [&, marker](const absl::StatusOr<ReadResult>&) {
      reported_before_the_end = port_.executed;
      if (marker + 1 < kMarkers) Decide(Marker{.token = absl::StrCat(marker + 1)});
    });
  }
  Decide(Marker{.token = "0"});
  EXPECT_EQ(reported_before_the_end, 512);
  EXPECT_EQ(port_.executed, kMarkers);
}

// A shard of one element under momentum, so with one slot, and with a memory limit in bytes.
class SmallShard {
 public:
  explicit SmallShard(int64_t memory_limit,
                      const optim::OptimizerConfig& optimizer = {"SGD",
                                                                 {{"learning_rate", 1}, {"momentum", 0.5}}})
      : shard({.slices = Vectors({{"a", 1}}),
               .optimizer = optim::MakeOptimizer(optimizer).value(),
               .memory_limit = memory_limit}) {
    shard.ConnectTo(&port);
  }
  // A push and an update by it alone; returns its answer.
  PushAnswer Step(bool read_values = false) {
    const int64_t next = shard.store().current().version + 1;
    const Gradient gradient = {.key = {0, 1, next}, .base_version = next - 1, .examples = 1};
    PushAnswer answer;
    auto push = shard.BeginPush({.gradient = gradient, .read_values = read_values});
    if (absl::Status came = push->AddChunk(ChunkAt(0), Bytes({1})); !came.ok()) return came;
    shard.FinishPush(std::move(push), [&](absl::StatusOr<PushResult> result) { answer = std::move(result); });
    Decide(Apply{.version = next, .contributors = {gradient}});
    return answer;
  }
  ReadAnswer Read(const std::string& marker) {
    ReadAnswer answer;
    shard.Read(marker, [&](absl::StatusOr<ReadResult> result) { answer = std::move(result); });
    return answer;
  }
  void Decide(LogEntry::Action action) {
    shard.Append({shard.next_index(), std::move(action)});
    shard.Flush();
  }

  RecordingPort port;
  Shard shard;
};

// 4 bytes each: the slot, two versions, a gradient, one that arrives, and two for a snapshot.
constexpr int64_t kNeedsOfOneWorker = 4 * (1 + 2 + 1 + 1 + 2);

TEST(ShardMemory, TheMemoryNeedsSufficeWhileASnapshotIsRead) {
  SmallShard small(kNeedsOfOneWorker);
  for (int step = 0; step < 3; ++step) {
    small.Decide(Marker{.token = "snapshot", .snapshot = true});
    const ReadAnswer snapshot = small.Read("snapshot");
    ASSERT_TRUE(snapshot->ok()) << snapshot->status();
    const PushAnswer pushed = small.Step(/*read_values=*/true);
    ASSERT_TRUE(pushed->ok()) << pushed->status();
    EXPECT_NE((*pushed)->values.data, nullptr);
  }
}

TEST(ShardMemory, UnreadVersionsAreDroppedWhenTheMemoryIsNeeded) {
  SmallShard small(kNeedsOfOneWorker);
  for (int marker = 0; marker < 20; ++marker) {
    small.Decide(Marker{.token = absl::StrCat(marker)});
    ASSERT_TRUE(small.Step()->ok());
  }
  const ReadAnswer late = small.Read("0"), recent = small.Read("19");
  EXPECT_EQ(late->status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(late->status().message()), HasSubstr("of 28 B are in use"));
  EXPECT_EQ((*recent)->values.version, 19);
}

TEST(ShardMemory, SlowReadersCauseRefusalsUntilTheyFinish) {
  SmallShard small(kNeedsOfOneWorker);
  std::vector<ReadAnswer> readers;  // each holds a version
  PushAnswer pushed;
  while (readers.size() < 5) {
    readers.push_back(small.Read(""));
    ASSERT_TRUE(readers.back()->ok()) << readers.back()->status();
    pushed = small.Step(/*read_values=*/true);
    ASSERT_TRUE(pushed->ok()) << pushed->status();
  }
  EXPECT_EQ((*pushed)->values.data, nullptr) << "the memory allows no further reader of the new version";
  // The slot and six versions are allocated.
  EXPECT_EQ(small.Read("")->status(),
            absl::ResourceExhaustedError("no memory for a version in addition to the one to be read, 4 B: 28 "
                                         "B of 28 B are in use (--memory_limit)"));
  EXPECT_EQ(small.Step()->status().code(), absl::StatusCode::kResourceExhausted);
  readers.clear();
  EXPECT_TRUE(small.Read("")->ok());
  EXPECT_TRUE(small.Step()->ok());
}

TEST(ShardMemory, ASnapshotWithoutRoomForItsSlotsIsRefused) {
  // Two slots and two versions fit, but no copy of the slots.
  SmallShard small(4 * (2 + 2), {"Adam", {{"learning_rate", 1}}});
  small.Decide(Marker{.token = "values"});
  small.Decide(Marker{.token = "state", .snapshot = true});
  EXPECT_TRUE(small.Read("values")->ok());
  EXPECT_THAT(std::string(small.Read("state")->status().message()),
              HasSubstr("no memory for the slots of a snapshot, 8 B"));
}

}  // namespace
}  // namespace cairn::ps
