#include "ps/replication/shard_backup.h"

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ps/log/follow_proto.h"
#include "ps/shard/shard.h"
#include "tests/unit/ps/pieces.h"
#include "tests/unit/ps/recording_port.h"

namespace cairn::ps {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// The totals of all servers: the sums of this shard, and three times as much on the others.
const optim::VariableSquares kClipped = {{"a", {.gradient = 100}}, {"b", {.gradient = 300}}};

// The backup of a shard of two elements, under LAMB: it receives entries and is then promoted.
class ReplicatedShard {
 public:
  ReplicatedShard()
      : shard({.slices = Vectors({{"a", 2}}),
               .optimizer =
                   optim::MakeOptimizer({"Lamb", {{"learning_rate", 1}, {"global_clipnorm", 5}}}).value(),
               .most_workers = 2}) {}

  LogEntry MeasureOf(optim::Norms norms, optim::VariableSquares known = {}) {
    return {.action = Measure{.version = 1, .contributors = {gradient}, .norms = norms},
            .known = std::move(known)};
  }
  LogEntry TheApply() {
    return {.action = Apply{.version = 1, .contributors = {gradient}},
            .known = {{"a", {.values = 8, .direction = 2}}}};
  }
  // An entry from the primary.
  absl::Status Replicate(LogEntry entry, bool with_mean) {
    entry.index = shard.next_index();
    v1::ReplicatedEntry replicated;
    *replicated.mutable_decision() = ToProto(entry);
    replicated.set_mean(with_mean);
    replicated.set_examples(with_mean);
    std::shared_ptr<AlignedBuffer> mean;
    if (with_mean) {
      mean = std::make_shared<AlignedBuffer>(2);
      mean->data()[0] = 6;
      mean->data()[1] = 8;
    }
    const absl::Status status = AppendReplicated(replicated, mean, shard);
    shard.Flush();
    return status;
  }
  void Promote() {
    shard.AwaitMissingPushes();
    shard.ConnectTo(&port);
  }
  // An entry from the log.
  void Decide(LogEntry entry) {
    entry.index = shard.next_index();
    shard.Append(entry);
    shard.Flush();
  }
  void PushAgain() {
    auto push = shard.BeginPush({.gradient = gradient, .read_values = true});
    EXPECT_EQ(push->AddChunk(ChunkAt(0), Bytes({6, 8})), absl::OkStatus());
    shard.FinishPush(std::move(push),
                     [this](absl::StatusOr<PushResult> result) { answer = std::move(result); });
  }
  std::vector<float> Current() { return ToVector(shard.store().current()); }

  const Gradient gradient = {
      .key = {.worker = 0, .incarnation = 1, .step = 1}, .base_version = 0, .examples = 1};
  RecordingPort port;
  Shard shard;
  std::optional<absl::StatusOr<PushResult>> answer;  // nothing while the push waits
};

TEST(ReplicatedShard, IsPromotedBetweenTwoMeasures) {
  ReplicatedShard undisturbed, backup;
  ASSERT_EQ(undisturbed.Replicate(undisturbed.MeasureOf(optim::Norms::kGradient), /*with_mean=*/true),
            absl::OkStatus());
  ASSERT_EQ(undisturbed.Replicate(undisturbed.MeasureOf(optim::Norms::kLayer, kClipped), /*with_mean=*/false),
            absl::OkStatus());
  ASSERT_EQ(undisturbed.Replicate(undisturbed.TheApply(), /*with_mean=*/false), absl::OkStatus());

  ASSERT_EQ(backup.Replicate(backup.MeasureOf(optim::Norms::kGradient), /*with_mean=*/true),
            absl::OkStatus());
  backup.Promote();
  ASSERT_TRUE(backup.shard.UnansweredSums().has_value());
  EXPECT_EQ(backup.shard.UnansweredSums()->index, 1);
  EXPECT_THAT(backup.shard.UnansweredSums()->slices[0].bands, ElementsAre(optim::Squares{.gradient = 100}));
  backup.Decide(backup.MeasureOf(optim::Norms::kLayer, kClipped));
  ASSERT_EQ(backup.port.sums.size(), 1u);
  EXPECT_EQ(backup.port.sums[0].index, 2);
  backup.Decide(backup.TheApply());
  EXPECT_EQ(backup.shard.store().current().version, 1);
  EXPECT_EQ(backup.Current(), undisturbed.Current());
  backup.PushAgain();
  EXPECT_EQ((*backup.answer)->outcome, v1::OUTCOME_ACCEPTED);
  EXPECT_TRUE((*backup.answer)->duplicate);
}

TEST(ReplicatedShard, AMeasureWithLostGradientsWaitsForThem) {
  ReplicatedShard backup;
  backup.Promote();
  backup.Decide(backup.MeasureOf(optim::Norms::kGradient));
  EXPECT_THAT(backup.shard.Missing(), ElementsAre(backup.gradient.key));
  EXPECT_EQ(backup.shard.WaitsAt(), 1);
  EXPECT_THAT(backup.port.sums, IsEmpty());
  backup.PushAgain();
  EXPECT_EQ(backup.shard.WaitsAt(), 0);
  ASSERT_EQ(backup.port.sums.size(), 1u);
  EXPECT_THAT(backup.port.sums[0].slices[0].bands, ElementsAre(optim::Squares{.gradient = 100}));
  backup.Decide(backup.MeasureOf(optim::Norms::kLayer, kClipped));
  backup.Decide(backup.TheApply());
  EXPECT_EQ((*backup.answer)->outcome, v1::OUTCOME_ACCEPTED);
}

TEST(ReplicatedShard, RefusesEntriesOutsideTheMeasuredUpdate) {
  ReplicatedShard backup;
  const LogEntry gradient = backup.MeasureOf(optim::Norms::kGradient),
                 layer = backup.MeasureOf(optim::Norms::kLayer, kClipped);
  EXPECT_THAT(std::string(backup.Replicate(backup.TheApply(), /*with_mean=*/true).message()),
              HasSubstr("entry 1 of the log comes after 0 of the 2 norms of an update"));
  EXPECT_FALSE(backup.Replicate(layer, /*with_mean=*/true).ok());
  ASSERT_EQ(backup.Replicate(gradient, /*with_mean=*/true), absl::OkStatus());
  EXPECT_FALSE(backup.Replicate({.action = Marker{.token = "between"}}, /*with_mean=*/false).ok());
  EXPECT_FALSE(backup.Replicate(gradient, /*with_mean=*/false).ok());
  EXPECT_FALSE(backup.Replicate(backup.TheApply(), /*with_mean=*/false).ok());
  ASSERT_EQ(backup.Replicate(layer, /*with_mean=*/false), absl::OkStatus());
  EXPECT_FALSE(backup.Replicate(layer, /*with_mean=*/false).ok());
  ASSERT_EQ(backup.Replicate(backup.TheApply(), /*with_mean=*/false), absl::OkStatus());
  EXPECT_EQ(backup.shard.failure(), absl::OkStatus());
}

TEST(ReplicatedShard, RefusesAnUpdateThatIsNotTheNextOne) {
  ReplicatedShard backup;
  LogEntry later = backup.MeasureOf(optim::Norms::kGradient);
  std::get<Measure>(later.action).version = 2;
  EXPECT_THAT(std::string(backup.Replicate(later, /*with_mean=*/true).message()),
              HasSubstr("entry 1 of the log belongs to the update to version 2, but follows version 0"));
}

TEST(ReplicatedShard, ContinuesFromTheVersionOfTheReceivedState) {
  ReplicatedShard backup;
  v1::ReplicatedShard state;
  state.set_next_index(7);
  state.set_version(5);
  ASSERT_EQ(backup.shard.Restore(state, std::make_shared<AlignedBuffer>(6)), absl::OkStatus());
  LogEntry next = backup.MeasureOf(optim::Norms::kGradient);
  EXPECT_FALSE(backup.Replicate(next, /*with_mean=*/true).ok());
  std::get<Measure>(next.action).version = 6;
  EXPECT_EQ(backup.Replicate(next, /*with_mean=*/true), absl::OkStatus());
}

TEST(ReplicatedShard, RefusesEntriesAboutWorkersThatTheJobLacks) {
  ReplicatedShard backup;
  LogEntry strange = backup.MeasureOf(optim::Norms::kGradient);
  std::get<Measure>(strange.action).contributors[0].key.worker = 2;
  const PushKey key = std::get<Measure>(strange.action).contributors[0].key;
  for (const LogEntry& entry :
       {strange, LogEntry{.action = Refuse{.key = key}}, LogEntry{.action = Release{.key = key}}}) {
    EXPECT_THAT(std::string(backup.Replicate(entry, /*with_mean=*/true).message()),
                HasSubstr("entry 1 of the log is about worker 2, but the number of workers is 2"));
  }
}

// An impossible state of the shard, and its refusal.
struct StrangeState {
  void (*change)(v1::ReplicatedShard& state);
  const char* refusal;
};
class StrangeStateTest : public testing::TestWithParam<StrangeState> {};
INSTANTIATE_TEST_SUITE_P(
    Shard, StrangeStateTest,
    testing::Values(StrangeState{[](v1::ReplicatedShard& state) { state.set_next_index(0); },
                                 "a replicated state cannot be at entry 0, version 5"},
                    StrangeState{[](v1::ReplicatedShard& state) { state.set_version(-1); },
                                 "a replicated state cannot be at entry 7, version -1"},
                    StrangeState{[](v1::ReplicatedShard& state) { state.set_rejected(-2); },
                                 "0 duplicates, -2 rejected pushes"},
                    StrangeState{[](v1::ReplicatedShard& state) { state.set_learning_rate(-1); },
                                 "a learning rate of -1"},
                    StrangeState{[](v1::ReplicatedShard& state) { state.add_ledger()->set_worker(2); },
                                 "worker 2, but the number of workers is 2"},
                    StrangeState{[](v1::ReplicatedShard& state) { state.add_ledger()->set_worker(-1); },
                                 "worker -1, but the number of workers is 2"},
                    StrangeState{[](v1::ReplicatedShard& state) {
                                   v1::PushKey& key =
                                       *state.add_deferred()->mutable_gradient()->mutable_key();
                                   key.set_worker(2);
                                   key.set_incarnation(1);
                                   key.set_step(1);
                                 },
                                 "worker 2, but the number of workers is 2"}));

TEST_P(StrangeStateTest, IsRefused) {
  ReplicatedShard backup;
  v1::ReplicatedShard state;
  state.set_next_index(7);
  state.set_version(5);
  GetParam().change(state);
  EXPECT_THAT(std::string(backup.shard.Restore(state, std::make_shared<AlignedBuffer>(6)).message()),
              HasSubstr(GetParam().refusal));
  EXPECT_EQ(backup.shard.next_index(), 1);
}

}  // namespace
}  // namespace cairn::ps
