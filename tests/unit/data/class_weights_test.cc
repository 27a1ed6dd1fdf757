// Weights of examples by their class. Those of one class per example are what Keras 3.15 computes:
//     from keras.src.trainers.data_adapters.data_adapter_utils import class_weight_to_sample_weights
//     class_weight_to_sample_weights(targets, {1: 2.5, 2: 0.5})
#include "data/class_weights.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cairn::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Split SplitOf(Targets targets) {
  Split split;
  split.targets = std::move(targets);
  split.targets_name = "y_train";
  return split;
}

// The weights of examples with these targets.
Split Weighted(Targets targets, Weights weights = {}) {
  Split split = SplitOf(std::move(targets));
  split.weights = std::move(weights);
  const absl::Status status = ApplyClassWeights({.class_weights = {{1, 2.5f}, {2, 0.5f}}}, split);
  EXPECT_TRUE(status.ok()) << status;
  return split;
}

std::string Refusal(Targets targets, const DataOptions& options = {.class_weights = {{1, 2.5f}}}) {
  Split split = SplitOf(std::move(targets));
  return std::string(ApplyClassWeights(options, split).message());
}

TEST(ClassWeights, ClassIndexHasItsWeight) {
  EXPECT_THAT(Weighted({.values = {1, 2, 0}, .num_classes = 3}).weights.values, ElementsAre(2.5f, 0.5f, 1));
}

TEST(ClassWeights, ClassOfAOneHotVectorIsTheLargest) {
  const Targets one_hot = {
      .values = {0, 1, 0, 0, 0, 1, 1, 0, 0}, .per_example = 3, .shape = {3}, .position_classes = 2};
  const Split split = Weighted(one_hot);
  EXPECT_THAT(split.weights.values, ElementsAre(2.5f, 0.5f, 1));
  EXPECT_EQ(split.weights.per_example(), 1);
}

TEST(ClassWeights, ClassOfProbabilitiesIsTheFirstOfTheLargest) {
  const Targets soft = {
      .values = {0.2f, 0.5f, 0.3f, 0.4f, 0.4f, 0.2f, 0, 0.25f, 0.75f}, .per_example = 3, .shape = {3}};
  EXPECT_THAT(Weighted(soft).weights.values, ElementsAre(2.5f, 1, 0.5f));
}

TEST(ClassWeights, WeightsOfTheFileAreMultiplied) {
  EXPECT_THAT(Weighted({.values = {1, 2, 0}, .num_classes = 3}, {.values = {2, 4, 3}}).weights.values,
              ElementsAre(5, 2, 3));
}

// Keras has no such weights: it takes the position of the largest index for the class.
TEST(ClassWeights, EachPositionHasTheWeightOfItsClass) {
  const Targets mask = {.values = {0, 2, 1, 0, 1, 1}, .per_example = 3, .shape = {3}, .position_classes = 3};
  const Split split = Weighted(mask);
  EXPECT_THAT(split.weights.values, ElementsAre(1, 0.5f, 2.5f, 1, 2.5f, 2.5f));
  EXPECT_EQ(split.weights.per_example(), 3);
  EXPECT_EQ(split.weights.parts[0].shape, Shape({3}));
  EXPECT_THAT(Weighted(mask, {.values = {2, 4}}).weights.values, ElementsAre(2, 1, 5, 4, 10, 10));
}

TEST(ClassWeights, EachVectorOfAMaskHasTheWeightOfItsClass) {
  const Targets mask = {.values = {0, 1, 0, 0, 0, 1, 1, 0, 0, 0, 1, 0},
                        .per_example = 6,
                        .shape = {2, 3},
                        .position_classes = 2};
  const Split split = Weighted(mask);
  EXPECT_THAT(split.weights.values, ElementsAre(2.5f, 0.5f, 1, 2.5f));
  EXPECT_EQ(split.weights.parts[0].shape, Shape({2}));
}

TEST(ClassWeights, TargetsWithoutClassesAreRefused) {
  EXPECT_THAT(Refusal({.values = {1.5, -2}}),
              HasSubstr("y_train: targets are numbers, neither class indices nor"));
  EXPECT_THAT(Refusal({.values = {0.5f, 0.25f, 1, 0}, .per_example = 2, .shape = {2}}),
              HasSubstr("targets are numbers"));
  EXPECT_THAT(Refusal({.values = {0, 1}, .num_classes = 2}, {.class_weights = {{2, 1.5f}}}),
              HasSubstr("y_train: class 2 has the weight 1.5, but labels go up to 1"));
  EXPECT_THAT(Refusal({.values = {0, 1}, .num_classes = 2},
                      {.target_parts = {{"a"}, {"b"}}, .class_weights = {{1, 2}}}),
              HasSubstr("class weights need a model with one output, not 2"));
}

TEST(ClassWeights, OtherNumbersOfWeightsAreRefused) {
  Split split = SplitOf({.values = {0, 2, 1}, .per_example = 3, .shape = {3}, .position_classes = 3});
  split.weights = {.values = {1, 1}, .parts = {{.per_example = 2, .shape = {2}}}};
  EXPECT_THAT(std::string(ApplyClassWeights({.class_weights = {{1, 2.5f}}}, split).message()),
              HasSubstr("has classes for 3 rows of an example, but examples have 2 weights"));
}

TEST(ClassWeights, TheLossDecidesWhetherTargetsAreIndicesOrVectors) {
  const std::map<int64_t, float> of_classes = {{0, 0.5f}, {1, 3.0f}};
  // One position of each example has class 1: these are no one-hot vectors of three classes.
  Split positions = SplitOf({.values = {0, 1, 0, 1, 0, 0}, .per_example = 3, .position_classes = 2});
  EXPECT_TRUE(ApplyClassWeights({.class_weights = of_classes, .targets_per_row = 1}, positions).ok());
  EXPECT_THAT(positions.weights.values, ElementsAre(0.5f, 3, 0.5f, 3, 0.5f, 0.5f));
  // The class of targets with several classes or none is the first of the largest, as in Keras.
  Split several = SplitOf({.values = {0, 1, 1, 0, 0, 0}, .per_example = 3, .position_classes = 2});
  EXPECT_TRUE(ApplyClassWeights({.class_weights = of_classes, .targets_per_row = 3}, several).ok());
  EXPECT_THAT(several.weights.values, ElementsAre(3, 0.5f));
  // Targets that do not fit are refused with the model's shapes later.
  EXPECT_TRUE(ApplyClassWeights({.class_weights = of_classes, .targets_per_row = 2}, several).ok());
}

TEST(ClassWeights, NegativeLabelsStandForNoClass) {
  Split split = SplitOf({.values = {-1, 1, 0, -1}, .per_example = 2});
  EXPECT_TRUE(ApplyClassWeights({.class_weights = {{1, 3.0f}}, .targets_per_row = 1}, split).ok());
  EXPECT_THAT(split.weights.values, ElementsAre(1, 3, 1, 1));
}

}  // namespace
}  // namespace cairn::data
