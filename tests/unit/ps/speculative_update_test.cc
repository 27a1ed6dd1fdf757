// Speculative updates: they give the same bits as regular updates, or have no effect.
#include "ps/table/speculative_update.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <thread>

#include "common/net/wire/update_chunk.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ps/shard/shard.h"
#include "tests/unit/ps/two_shards.h"

namespace cairn::ps {
namespace {

using testing::HasSubstr;

// With a thread pool.
class ParallelSpeculativeUpdateTest : public SpeculativeUpdateTest {
 protected:
  ParallelSpeculativeUpdateTest() : SpeculativeUpdateTest(3) {}
};

auto Optimizers() {
  return testing::Values(
      optim::OptimizerConfig{.name = "SGD", .hyperparameters = {{"learning_rate", 0.1}}},
      optim::OptimizerConfig{.name = "SGD", .hyperparameters = {{"learning_rate", 0.1}, {"momentum", 0.9}}},
      // Its slot begins at 0.1.
      optim::OptimizerConfig{.name = "Adagrad", .hyperparameters = {{"learning_rate", 0.1}}},
      optim::OptimizerConfig{.name = "Adam", .hyperparameters = {{"learning_rate", 0.001}}});
}
std::string NameOfOptimizer(const testing::TestParamInfo<optim::OptimizerConfig>& test) {
  return test.param.name + (test.param.hyperparameters.count("momentum") > 0 ? "WithMomentum" : "");
}
INSTANTIATE_TEST_SUITE_P(Of, SpeculativeUpdateTest, Optimizers(), NameOfOptimizer);
INSTANTIATE_TEST_SUITE_P(Of, ParallelSpeculativeUpdateTest, Optimizers(), NameOfOptimizer);

TEST_P(SpeculativeUpdateTest, GivesTheSameBitsAsARegularUpdate) {
  FirstRound(3);
  for (int64_t version = 2; version <= 4; ++version) {
    std::vector<Push> pushes = Round(version, 3);
    Interleaved(pushes);
    for (const Push& push : pushes) EXPECT_EQ(push.sent, kSize) << "before any of them is complete";
    for (Push& push : pushes) speculative_.End(push);
    EXPECT_EQ(speculative_.shard().store().current().version, version - 1)
        << "no version before the decision";
    speculative_.Decide(ApplyOf(version, pushes));
    ExpectAllSpeculative(pushes);
    Afterwards(version, pushes);
  }
}

TEST_P(SpeculativeUpdateTest, GivesTheSameBitsWithBorrowedGradients) {
  FirstRound(2);
  for (int64_t version = 2; version <= 5; ++version) {
    std::vector<Push> pushes = Round(version, 2);
    speculative_.Begin(pushes[0]);
    speculative_.Begin(pushes[1]);
    // In every other round, one chunk in the middle is received another way and copied.
    const int64_t other_way = version % 2 == 0 ? 2 * kChunk : -1;
    for (int64_t begin = 0; begin < kSize; begin += kChunk) {
      for (Push& push : pushes) {
        if (begin == other_way) {
          speculative_.Chunk(push, begin);
        } else {
          speculative_.BorrowedChunk(push, begin);
        }
      }
    }
    for (Push& push : pushes) speculative_.End(push);
    speculative_.Decide(ApplyOf(version, pushes));
    ExpectAllSpeculative(pushes);
    Afterwards(version, pushes);
  }
}

TEST_P(SpeculativeUpdateTest, ARegularUpdateGivesTheSameBitsWithBorrowedGradients) {
  std::vector<Push> pushes = Round(1, 2);
  for (Push& push : pushes) {
    speculative_.Begin(push);
    for (int64_t begin = 0; begin < kSize; begin += kChunk) speculative_.BorrowedChunk(push, begin);
  }
  ExpectMadeAfterwards(1, pushes);
}

TEST_P(SpeculativeUpdateTest, AdjacentPiecesAreComputedAndSentTogether) {
  FirstRound(1);
  std::vector<Push> pushes = Round(2, 1);
  Push& push = pushes[0];
  speculative_.Begin(push);
  constexpr int64_t kCuts[] = {0, net::kUpdateChunk + 1, 4 * net::kUpdateChunk, kSize};
  for (int i = 0; i < 3; ++i) {
    speculative_.Chunk(push, kCuts[i], kCuts[i + 1]);
    EXPECT_EQ(push.sends, i + 1);
  }
  speculative_.End(push);
  speculative_.Decide(ApplyOf(2, pushes));
  ExpectAllSpeculative(pushes);
  Afterwards(2, pushes);
}

TEST_P(ParallelSpeculativeUpdateTest, GivesTheSameBitsAndIsSentCompletelyBeforeTheAnswer) {
  constexpr int kWorkers = 3;
  FirstRound(kWorkers);
  for (int64_t version = 2; version <= 9; ++version) {
    std::vector<Push> pushes = Round(version, kWorkers);
    if (version % 2 == 0) {
      Interleaved(pushes);
      for (Push& push : pushes) speculative_.End(push);
    } else {
      std::vector<std::thread> workers;
      for (Push& push : pushes) workers.emplace_back([this, &push] { speculative_.Whole(push); });
      for (std::thread& worker : workers) worker.join();
    }
    speculative_.Decide(ApplyOf(version, pushes));
    ExpectAllSpeculative(pushes);
    for (const Push& push : pushes) EXPECT_EQ(push.sent, kSize);
    Afterwards(version, pushes);
  }
}

TEST_P(ParallelSpeculativeUpdateTest, AnUpdateDroppedWhileItIsComputedHasNoEffect) {
  FirstRound(2);
  for (int64_t version = 2; version <= 9; ++version) {
    std::vector<Push> pushes = Round(version, 2);
    Interleaved(pushes);
    pushes[1].open.reset();  // its stream broke; pieces may still be sent to it until the decision
    speculative_.End(pushes[0]);
    speculative_.Decide(Apply{.version = version, .contributors = {pushes[0].gradient}});
    pushes.pop_back();
    ExpectNoneSpeculative(pushes);
    Afterwards(version, pushes);
    std::vector<Push> both = Round(++version, 2);  // so that two are expected again
    Interleaved(both);
    ExpectMadeAfterwards(version, both);
  }
}

TEST_P(SpeculativeUpdateTest, ARoundWithoutAPredictedWorkerIsUpdatedRegularly) {
  FirstRound(3);
  std::vector<Push> pushes = Round(2, 3);
  Interleaved(pushes);
  pushes.pop_back();  // its stream broke
  ExpectMadeAfterwards(2, pushes);

  std::vector<Push> next = Round(3, 3);  // with the worker that is back, although two are expected
  Interleaved(next);
  ExpectMadeAfterwards(3, next);

  std::vector<Push> after_that = Round(4, 3);
  Interleaved(after_that);
  EndAndDecide(4, after_that);
  ExpectAllSpeculative(after_that);
  Afterwards(4, after_that);
}

TEST_P(SpeculativeUpdateTest, ARefusedWorkerGetsTheCurrentValues) {
  FirstRound(2);
  std::vector<Push> pushes = Round(2, 2);
  Interleaved(pushes);
  for (Push& push : pushes) speculative_.End(push);
  const std::vector<float> before = speculative_.values();
  speculative_.Decide(Refuse{.key = pushes[1].gradient.key, .reason = Refuse::Reason::kNotAMember});
  EXPECT_FALSE((*pushes[1].answer)->sent_early);
  EXPECT_EQ(ToVector((*pushes[1].answer)->values), before);
  pushes.pop_back();
  speculative_.Decide(ApplyOf(2, pushes));
  ExpectNoneSpeculative(pushes);
  Afterwards(2, pushes);
}

TEST_P(SpeculativeUpdateTest, ARepeatedPushReplacesTheAbandonedOne) {
  FirstRound(2);
  std::vector<Push> pushes = Round(2, 2);
  speculative_.Begin(pushes[0]);
  speculative_.Chunk(pushes[0], 0);
  pushes[0].open.reset();
  pushes[0] = Of(0, 2);  // another gradient under the same key
  Interleaved(pushes);
  ExpectMadeAfterwards(2, pushes);
}

TEST_P(SpeculativeUpdateTest, ConcurrentPushesWithTheSameKeyDoNotMix) {
  FirstRound(2);
  std::vector<Push> pushes = Round(2, 2);
  Push other = Of(0, 2);
  speculative_.Begin(other);
  speculative_.Chunk(other, 0);
  Interleaved(pushes);
  for (Push& push : pushes) speculative_.End(push);
  for (int64_t begin = kChunk; begin < kSize; begin += kChunk) speculative_.Chunk(other, begin);
  speculative_.End(other);
  speculative_.Decide(ApplyOf(2, pushes));
  ExpectNoneSpeculative(pushes);
  EXPECT_TRUE((*other.answer)->duplicate);
  EXPECT_EQ(ToVector((*other.answer)->values), speculative_.values());
  Afterwards(2, pushes);
}

TEST_P(SpeculativeUpdateTest, AChangedLearningRateAppliesToTheNextUpdate) {
  FirstRound(2);
  std::vector<Push> pushes = Round(2, 2);
  Interleaved(pushes);
  speculative_.Decide(ConfigChange{.learning_rate = 0.5f});
  after_.Decide(ConfigChange{.learning_rate = 0.5f});
  ExpectMadeAfterwards(2, pushes);
}

TEST_P(SpeculativeUpdateTest, IsMadeWithTheSettingsOfGroupsThatAPushBrings) {
  FirstRound(2);
  for (int64_t version = 2; version <= 4; ++version) {
    const ConfigChange settings = {
        .groups = {{.learning_rate = 0.5f / static_cast<float>(version)}, {.untouched = version == 3}}};
    std::vector<Push> pushes = Round(version, 2);
    pushes[0].gradient.groups = settings.groups;
    Interleaved(pushes);
    for (Push& push : pushes) speculative_.End(push);
    pushes[0].gradient.groups.clear();
    speculative_.Decide(settings);
    speculative_.Decide(ApplyOf(version, pushes));
    ExpectAllSpeculative(pushes);
    after_.Decide(settings);
    Afterwards(version, pushes);
  }
}

TEST_P(SpeculativeUpdateTest, OtherSettingsOfGroupsThanExpectedMakeARegularUpdate) {
  FirstRound(2);
  std::vector<Push> pushes = Round(2, 2);
  pushes[0].gradient.groups = {{.learning_rate = 0.25f}};
  Interleaved(pushes);
  pushes[0].gradient.groups.clear();
  ExpectMadeAfterwards(2, pushes);  // the log has no settings
  pushes = Round(3, 2);
  Interleaved(pushes);
  for (Side* side : {&speculative_, &after_}) side->Decide(ConfigChange{.groups = {{.untouched = true}}});
  ExpectMadeAfterwards(3, pushes);
}

TEST_P(SpeculativeUpdateTest, ValuesWrittenMeanwhileAreUpdated) {
  FirstRound(2);
  std::vector<Push> pushes = Round(2, 2);
  Interleaved(pushes);
  for (Side* side : {&speculative_, &after_}) {
    auto data = std::make_unique<Accumulator>(side->shard().store().pool());
    ASSERT_EQ(data->Add(ChunkAt(5), Bytes({17})), absl::OkStatus());
    side->shard().Write(std::move(data), {}, [](absl::StatusOr<int64_t> version) { EXPECT_EQ(*version, 1); });
  }
  ExpectMadeAfterwards(2, pushes);
}

TEST_P(SpeculativeUpdateTest, ANonFiniteGradientFailsTheJob) {
  FirstRound(2);
  std::vector<Push> pushes = Round(2, 2);
  pushes[1].values[kSize - 2001] = std::numeric_limits<float>::infinity();  // the last of 'b'
  Interleaved(pushes);
  EndAndDecide(2, pushes);
  EXPECT_THAT(speculative_.shard().failure().message(),
              HasSubstr("the gradient of 'b' is not finite in the update to version 2"));
  EXPECT_EQ((*pushes[0].answer).status(), speculative_.shard().failure());
  EXPECT_EQ(speculative_.shard().store().current().version, 1);
}

TEST_P(SpeculativeUpdateTest, WorkersMayPushAtTheSameTime) {
  constexpr int kWorkers = 4;
  FirstRound(kWorkers);
  for (int64_t version = 2; version <= 5; ++version) {
    std::vector<Push> pushes = Round(version, kWorkers);
    {
      std::vector<std::thread> workers;
      for (Push& push : pushes) workers.emplace_back([this, &push] { speculative_.Whole(push); });
      for (std::thread& worker : workers) worker.join();
    }
    speculative_.Decide(ApplyOf(version, pushes));
    ExpectAllSpeculative(pushes);
    Afterwards(version, pushes);
  }
}

TEST(SpeculativeUpdate, SmallShardsAreUpdatedRegularly) {
  QuietPort port;
  Shard shard({.slices = Vectors({{"a", 2}}), .optimizer = Sgd(1), .speculative_updates = true});
  shard.ConnectTo(&port);
  for (int64_t version = 1; version <= 2; ++version) {
    const Gradient gradient = {
        .key = {.worker = 0, .incarnation = 1, .step = version}, .base_version = version - 1, .examples = 1};
    auto push = shard.BeginPush(
        {.gradient = gradient, .read_values = true, .send_values = [](const auto&, int64_t, int64_t) {
           ADD_FAILURE() << "a piece of two elements";
           return true;
         }});
    EXPECT_EQ(push->AddChunk(ChunkAt(0), Bytes({1, 2})), absl::OkStatus());
    shard.FinishPush(std::move(push),
                     [](absl::StatusOr<PushResult> result) { EXPECT_FALSE(result->sent_early); });
    shard.Append({shard.next_index(), Apply{.version = version, .contributors = {gradient}}});
    shard.Flush();
  }
  EXPECT_EQ(shard.store().current().version, 2);
}

}  // namespace
}  // namespace cairn::ps
