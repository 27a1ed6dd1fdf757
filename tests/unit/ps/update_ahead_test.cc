// Speculative updates: they give the same bits as regular updates, or have no effect.
#include "ps/update_ahead.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <thread>

#include "common/net/ahead.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ps/shard.h"
#include "tests/unit/ps/two_shards.h"

namespace cairn::ps {
namespace {

using testing::HasSubstr;

// With a thread pool.
class HelpedUpdateAheadTest : public UpdateAheadTest {
 protected:
  HelpedUpdateAheadTest() : UpdateAheadTest(3) {}
};

auto Optimizers() {
  return testing::Values(
      OptimizerConfig{.name = "SGD", .hyperparameters = {{"learning_rate", 0.1}}},
      OptimizerConfig{.name = "SGD", .hyperparameters = {{"learning_rate", 0.1}, {"momentum", 0.9}}},
      // Its slot begins at 0.1.
      OptimizerConfig{.name = "Adagrad", .hyperparameters = {{"learning_rate", 0.1}}},
      OptimizerConfig{.name = "Adam", .hyperparameters = {{"learning_rate", 0.001}}});
}
std::string NameOfOptimizer(const testing::TestParamInfo<OptimizerConfig>& test) {
  return test.param.name + (test.param.hyperparameters.count("momentum") > 0 ? "WithMomentum" : "");
}
INSTANTIATE_TEST_SUITE_P(Of, UpdateAheadTest, Optimizers(), NameOfOptimizer);
INSTANTIATE_TEST_SUITE_P(Of, HelpedUpdateAheadTest, Optimizers(), NameOfOptimizer);

TEST_P(UpdateAheadTest, GivesTheSameBitsAsARegularUpdate) {
  FirstRound(3);
  for (int64_t version = 2; version <= 4; ++version) {
    std::vector<Push> pushes = Round(version, 3);
    Interleaved(pushes);
    for (const Push& push : pushes) EXPECT_EQ(push.sent, kSize) << "before any of them is complete";
    for (Push& push : pushes) ahead_.End(push);
    EXPECT_EQ(ahead_.shard().store().current().version, version - 1) << "no version before the decision";
    ahead_.Decide(ApplyOf(version, pushes));
    ExpectAllAhead(pushes);
    Afterwards(version, pushes);
  }
}

TEST_P(UpdateAheadTest, GivesTheSameBitsWithBorrowedGradients) {
  FirstRound(2);
  for (int64_t version = 2; version <= 5; ++version) {
    std::vector<Push> pushes = Round(version, 2);
    ahead_.Begin(pushes[0]);
    ahead_.Begin(pushes[1]);
    // In every other round, one chunk in the middle is received another way and copied.
    const int64_t other_way = version % 2 == 0 ? 2 * kChunk : -1;
    for (int64_t begin = 0; begin < kSize; begin += kChunk) {
      for (Push& push : pushes) {
        if (begin == other_way) {
          ahead_.Chunk(push, begin);
        } else {
          ahead_.LentChunk(push, begin);
        }
      }
    }
    for (Push& push : pushes) ahead_.End(push);
    ahead_.Decide(ApplyOf(version, pushes));
    ExpectAllAhead(pushes);
    Afterwards(version, pushes);
  }
}

TEST_P(UpdateAheadTest, ARegularUpdateGivesTheSameBitsWithBorrowedGradients) {
  std::vector<Push> pushes = Round(1, 2);
  for (Push& push : pushes) {
    ahead_.Begin(push);
    for (int64_t begin = 0; begin < kSize; begin += kChunk) ahead_.LentChunk(push, begin);
  }
  ExpectMadeAfterwards(1, pushes);
}

TEST_P(UpdateAheadTest, AdjacentPiecesAreComputedAndSentTogether) {
  FirstRound(1);
  std::vector<Push> pushes = Round(2, 1);
  Push& push = pushes[0];
  ahead_.Begin(push);
  constexpr int64_t kCuts[] = {0, net::kPieceAhead + 1, 4 * net::kPieceAhead, kSize};
  for (int i = 0; i < 3; ++i) {
    ahead_.Chunk(push, kCuts[i], kCuts[i + 1]);
    EXPECT_EQ(push.sends, i + 1);
  }
  ahead_.End(push);
  ahead_.Decide(ApplyOf(2, pushes));
  ExpectAllAhead(pushes);
  Afterwards(2, pushes);
}

TEST_P(HelpedUpdateAheadTest, GivesTheSameBitsAndIsSentCompletelyBeforeTheAnswer) {
  constexpr int kWorkers = 3;
  FirstRound(kWorkers);
  for (int64_t version = 2; version <= 9; ++version) {
    std::vector<Push> pushes = Round(version, kWorkers);
    if (version % 2 == 0) {
      Interleaved(pushes);
      for (Push& push : pushes) ahead_.End(push);
    } else {
      std::vector<std::thread> workers;
      for (Push& push : pushes) workers.emplace_back([this, &push] { ahead_.Whole(push); });
      for (std::thread& worker : workers) worker.join();
    }
    ahead_.Decide(ApplyOf(version, pushes));
    ExpectAllAhead(pushes);
    for (const Push& push : pushes) EXPECT_EQ(push.sent, kSize);
    Afterwards(version, pushes);
  }
}

TEST_P(HelpedUpdateAheadTest, AnUpdateDroppedWhileItIsComputedHasNoEffect) {
  FirstRound(2);
  for (int64_t version = 2; version <= 9; ++version) {
    std::vector<Push> pushes = Round(version, 2);
    Interleaved(pushes);
    pushes[1].open.reset();  // its stream broke; pieces may still be sent to it until the decision
    ahead_.End(pushes[0]);
    ahead_.Decide(Apply{.version = version, .contributors = {pushes[0].gradient}});
    pushes.pop_back();
    ExpectNoneAhead(pushes);
    Afterwards(version, pushes);
    std::vector<Push> both = Round(++version, 2);  // so that two are expected again
    Interleaved(both);
    ExpectMadeAfterwards(version, both);
  }
}

TEST_P(UpdateAheadTest, ARoundWithoutAPredictedWorkerIsUpdatedRegularly) {
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
  ExpectAllAhead(after_that);
  Afterwards(4, after_that);
}

TEST_P(UpdateAheadTest, ARefusedWorkerGetsTheCurrentValues) {
  FirstRound(2);
  std::vector<Push> pushes = Round(2, 2);
  Interleaved(pushes);
  for (Push& push : pushes) ahead_.End(push);
  const std::vector<float> before = ahead_.values();
  ahead_.Decide(Refuse{.key = pushes[1].gradient.key, .reason = Refuse::Reason::kNotAMember});
  EXPECT_FALSE((*pushes[1].answer)->sent_ahead);
  EXPECT_EQ(ToVector((*pushes[1].answer)->values), before);
  pushes.pop_back();
  ahead_.Decide(ApplyOf(2, pushes));
  ExpectNoneAhead(pushes);
  Afterwards(2, pushes);
}

TEST_P(UpdateAheadTest, ARepeatedPushReplacesTheAbandonedOne) {
  FirstRound(2);
  std::vector<Push> pushes = Round(2, 2);
  ahead_.Begin(pushes[0]);
  ahead_.Chunk(pushes[0], 0);
  pushes[0].open.reset();
  pushes[0] = Of(0, 2);  // another gradient under the same key
  Interleaved(pushes);
  ExpectMadeAfterwards(2, pushes);
}

TEST_P(UpdateAheadTest, ConcurrentPushesWithTheSameKeyDoNotMix) {
  FirstRound(2);
  std::vector<Push> pushes = Round(2, 2);
  Push other = Of(0, 2);
  ahead_.Begin(other);
  ahead_.Chunk(other, 0);
  Interleaved(pushes);
  for (Push& push : pushes) ahead_.End(push);
  for (int64_t begin = kChunk; begin < kSize; begin += kChunk) ahead_.Chunk(other, begin);
  ahead_.End(other);
  ahead_.Decide(ApplyOf(2, pushes));
  ExpectNoneAhead(pushes);
  EXPECT_TRUE((*other.answer)->duplicate);
  EXPECT_EQ(ToVector((*other.answer)->values), ahead_.values());
  Afterwards(2, pushes);
}

TEST_P(UpdateAheadTest, AChangedLearningRateAppliesToTheNextUpdate) {
  FirstRound(2);
  std::vector<Push> pushes = Round(2, 2);
  Interleaved(pushes);
  ahead_.Decide(Amendment{.learning_rate = 0.5f});
  after_.Decide(Amendment{.learning_rate = 0.5f});
  ExpectMadeAfterwards(2, pushes);
}

TEST_P(UpdateAheadTest, ValuesWrittenMeanwhileAreUpdated) {
  FirstRound(2);
  std::vector<Push> pushes = Round(2, 2);
  Interleaved(pushes);
  for (Side* side : {&ahead_, &after_}) {
    auto data = std::make_unique<Accumulator>(side->shard().store().pool());
    ASSERT_EQ(data->Add(At(5), Bytes({17})), absl::OkStatus());
    side->shard().Write(std::move(data), [](absl::StatusOr<int64_t> version) { EXPECT_EQ(*version, 1); });
  }
  ExpectMadeAfterwards(2, pushes);
}

TEST_P(UpdateAheadTest, ANonFiniteGradientFailsTheJob) {
  FirstRound(2);
  std::vector<Push> pushes = Round(2, 2);
  pushes[1].values[kSize - 2001] = std::numeric_limits<float>::infinity();  // the last of 'b'
  Interleaved(pushes);
  EndAndDecide(2, pushes);
  EXPECT_THAT(ahead_.shard().failure().message(),
              HasSubstr("the gradient of 'b' is not finite in the update to version 2"));
  EXPECT_EQ((*pushes[0].answer).status(), ahead_.shard().failure());
  EXPECT_EQ(ahead_.shard().store().current().version, 1);
}

TEST_P(UpdateAheadTest, WorkersMayPushAtTheSameTime) {
  constexpr int kWorkers = 4;
  FirstRound(kWorkers);
  for (int64_t version = 2; version <= 5; ++version) {
    std::vector<Push> pushes = Round(version, kWorkers);
    {
      std::vector<std::thread> workers;
      for (Push& push : pushes) workers.emplace_back([this, &push] { ahead_.Whole(push); });
      for (std::thread& worker : workers) worker.join();
    }
    ahead_.Decide(ApplyOf(version, pushes));
    ExpectAllAhead(pushes);
    Afterwards(version, pushes);
  }
}

TEST(UpdateAhead, SmallShardsAreUpdatedRegularly) {
  QuietPort port;
  Shard shard({.slices = Vectors({{"a", 2}}), .optimizer = Sgd(1), .update_ahead = true});
  shard.ConnectTo(&port);
  for (int64_t version = 1; version <= 2; ++version) {
    const Gradient gradient = {
        .key = {.worker = 0, .incarnation = 1, .step = version}, .base_version = version - 1, .examples = 1};
    auto push = shard.BeginPush(
        {.gradient = gradient, .read_values = true, .send_piece = [](const auto&, int64_t, int64_t) {
           ADD_FAILURE() << "a piece of two elements";
           return true;
         }});
    EXPECT_EQ(push->AddChunk(At(0), Bytes({1, 2})), absl::OkStatus());
    shard.FinishPush(std::move(push),
                     [](absl::StatusOr<PushResult> result) { EXPECT_FALSE(result->sent_ahead); });
    shard.Append({shard.next_index(), Apply{.version = version, .contributors = {gradient}}});
    shard.Flush();
  }
  EXPECT_EQ(shard.store().current().version, 2);
}

}  // namespace
}  // namespace cairn::ps
