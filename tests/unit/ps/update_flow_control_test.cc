// Flow control of a round with speculative updates.
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ps/table/speculative_update.h"
#include "tests/unit/ps/two_shards.h"

namespace cairn::ps {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

class UpdateFlowControlTest : public SpeculativeUpdateTest {};
INSTANTIATE_TEST_SUITE_P(Of, UpdateFlowControlTest,
                         testing::Values(optim::OptimizerConfig{.name = "SGD", .hyperparameters = {}}));

constexpr uint64_t kNoLimit = SpeculativeUpdate::kNoLimit;

TEST_P(UpdateFlowControlTest, TheWorkersOfARoundAreKeptInStep) {
  constexpr int64_t kLead = RoundFlowControl::kOnTheWay / 3;
  FirstRound(3);
  std::vector<Push> pushes = Round(2, 3);
  for (Push& push : pushes) {
    speculative_.Begin(push);
    EXPECT_THAT(push.allowed, ElementsAre(kLead * sizeof(float)));
    push.allowed.clear();
  }
  speculative_.Chunk(pushes[0], 0);
  speculative_.Chunk(pushes[1], 0);
  for (const Push& push : pushes) EXPECT_THAT(push.allowed, IsEmpty());
  speculative_.Chunk(pushes[2], 0);
  for (Push& push : pushes) EXPECT_THAT(push.allowed, ElementsAre(kLead * sizeof(float)));
  for (int64_t begin = kChunk; begin < kSize; begin += kChunk) {
    for (Push& push : pushes) speculative_.Chunk(push, begin);
  }
  EndAndDecide(2, pushes);
  ExpectAllSpeculative(pushes);
  Afterwards(2, pushes);
}

TEST_P(UpdateFlowControlTest, ASingleWorkerIsNotLimited) {
  FirstRound(1);
  std::vector<Push> pushes = Round(2, 1);
  speculative_.Begin(pushes[0]);
  EXPECT_THAT(pushes[0].allowed, ElementsAre(kNoLimit));
}

TEST_P(UpdateFlowControlTest, NoWorkerWaitsAfterAWrongPrediction) {
  FirstRound(3);
  std::vector<Push> pushes = Round(2, 3);
  speculative_.Begin(pushes[0]);
  speculative_.Begin(pushes[1]);
  pushes[1].open.reset();  // its stream broke
  EXPECT_EQ(pushes[0].allowed.back(), kNoLimit);
  speculative_.Begin(pushes[2]);
  EXPECT_THAT(pushes[2].allowed, ElementsAre(kNoLimit));
}

TEST_P(UpdateFlowControlTest, NoWorkerWaitsForOneWithoutExamples) {
  FirstRound(2);
  std::vector<Push> pushes = Round(2, 2);
  pushes[1].gradient.examples = 0;
  speculative_.Begin(pushes[0]);
  speculative_.Begin(pushes[1]);
  EXPECT_EQ(pushes[0].allowed.back(), kNoLimit);
}

TEST_P(UpdateFlowControlTest, NoWorkerWaitsWhenTheDecisionLacksOne) {
  FirstRound(2);
  std::vector<Push> pushes = Round(2, 2);
  speculative_.Begin(pushes[0]);
  for (int64_t begin = 0; begin < kSize; begin += kChunk) speculative_.Chunk(pushes[0], begin);
  speculative_.Begin(pushes[1]);
  speculative_.End(pushes[0]);
  speculative_.Decide(Apply{.version = 2, .contributors = {pushes[0].gradient}});
  EXPECT_NE(pushes[0].allowed.back(), kNoLimit) << "it has sent all";
  EXPECT_EQ(pushes[1].allowed.back(), kNoLimit);
}

}  // namespace
}  // namespace cairn::ps
