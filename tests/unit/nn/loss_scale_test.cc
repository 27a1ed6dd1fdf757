#include "nn/replica/loss_scale.h"

#include <gtest/gtest.h>

namespace cairn::nn {
namespace {

TEST(LossScale, AnOverflowHalvesItAndManyGoodStepsDoubleIt) {
  LossScale scale;
  EXPECT_TRUE(scale.Halve());
  EXPECT_EQ(scale.value(), LossScale::kFirst / 2);
  for (int step = 1; step < LossScale::kStepsToDouble; ++step) scale.CountGoodStep();
  EXPECT_EQ(scale.value(), LossScale::kFirst / 2);
  scale.CountGoodStep();
  EXPECT_EQ(scale.value(), LossScale::kFirst);
}

TEST(LossScale, AnOverflowResetsTheCount) {
  LossScale scale;
  for (int step = 1; step < LossScale::kStepsToDouble; ++step) scale.CountGoodStep();
  EXPECT_TRUE(scale.Halve());
  scale.CountGoodStep();
  EXPECT_EQ(scale.value(), LossScale::kFirst / 2);
}

TEST(LossScale, StaysWithinItsBounds) {
  LossScale scale;
  int halvings = 0;
  while (scale.Halve()) ++halvings;
  EXPECT_EQ(scale.value(), LossScale::kSmallest);
  EXPECT_EQ(halvings, 30);
  for (int step = 0; step < 100 * LossScale::kStepsToDouble; ++step) scale.CountGoodStep();
  EXPECT_EQ(scale.value(), LossScale::kLargest);
}

}  // namespace
}  // namespace cairn::nn
