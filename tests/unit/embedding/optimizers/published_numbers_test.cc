// Numbers of other systems: from running PyTorch 2.15, TensorFlow 2.21 and FBGEMM 1.9, and from their tests.
#include <map>
#include <vector>

#include "embedding/optimizers/row_optimizer.h"
#include "gtest/gtest.h"
#include "tests/unit/embedding/optimizers/trained_rows.h"

namespace cairn::embedding {
namespace {

using optim::OptimizerConfig;

// Three steps of a table of three rows. Step 3 has row 1 twice, (.3, .4) and (.1, -.2), which the caller adds.
TrainedRows AfterThreeSteps(const OptimizerConfig& config) {
  TrainedRows table(config, {{1, 2}, {3, 4}, {5, 6}});
  table.Step({{0, {0.1f, 0.2f}}, {1, {0.01f, 0.02f}}});
  table.Step({{0, {0.1f, 0.2f}}});
  table.Step({{1, {0.3f + 0.1f, 0.4f - 0.2f}}});
  return table;
}

TEST(PublishedRowNumbers, SgdOfTorchAndKeras) {
  const TrainedRows table = AfterThreeSteps({"SGD", {{"learning_rate", 0.1}}});
  ExpectNear(table.values(0), {0.98, 1.96});
  ExpectNear(table.values(1), {2.9590001, 3.9779999});
  EXPECT_EQ(table.values(2), (std::vector<float>{5, 6}));
}

TEST(PublishedRowNumbers, AdagradOfTorchAndTensorFlowMergesDuplicatesFirst) {
  const TrainedRows table = AfterThreeSteps({"Adagrad", {{"learning_rate", 0.1}, {"epsilon", 1e-10}}});
  ExpectNear(table.values(0), {0.9409813, 1.8994073});
  ExpectNear(table.values(1), {2.9184079, 3.9403121});
  EXPECT_EQ(table.values(2), (std::vector<float>{5, 6}));
}

TEST(PublishedRowNumbers, LazyAdamIsTorchsSparseAdam) {
  const TrainedRows table = AfterThreeSteps({"Adam", {{"learning_rate", 0.1}, {"epsilon", 1e-8}}});
  ExpectNear(table.values(0), {0.8000005, 1.8000003});
  ExpectNear(table.values(1), {2.8347049, 3.8307161});
  EXPECT_EQ(table.values(2), (std::vector<float>{5, 6}));
}

// torch adds its epsilon after the correction: this one is the same at the second step, within 1e-8.
TEST(PublishedRowNumbers, AdamThatCatchesUpIsTorchsDenseAdam) {
  const TrainedRows table =
      AfterThreeSteps({"Adam", {{"learning_rate", 0.1}, {"epsilon", 4.5e-10}, {"catch_up", 1}}});
  ExpectNear(table.ReadValues(0), {0.7226996, 1.7226996});
  ExpectNear(table.values(1), {2.7678399, 3.7642806});
  EXPECT_EQ(table.ReadValues(2), (std::vector<float>{5, 6}));
}

TEST(PublishedRowNumbers, FtrlOfTensorFlow) {
  const TrainedRows table = AfterThreeSteps({"Ftrl",
                                             {{"learning_rate", 0.1},
                                              {"l1_regularization_strength", 0.01},
                                              {"l2_regularization_strength", 0.1},
                                              {"initial_accumulator_value", 0.1}}});
  ExpectNear(table.values(0), {-0.0092228, 0.1956824});
  ExpectNear(table.values(1), {-0.0745770, -0.0468017});
  EXPECT_EQ(table.values(2), (std::vector<float>{5, 6}));
}

TEST(PublishedRowNumbers, RowWiseAdagradOfFbgemm) {
  TrainedRows table({"RowWiseAdagrad", {{"learning_rate", 0.1}}},
                    {{1, 2, 3, 4}, {5, 6, 7, 8}, {9, 10, 11, 12}});
  table.Step({{0, {0.1f, 0.2f, 0.3f, 0.4f}}, {1, {0.01f, 0.02f, 0.03f, 0.04f}}});
  table.Step({{0, {0.1f, 0.2f, 0.3f, 0.4f}}});
  table.Step({{1, {0.3f + 0.1f, 0.4f - 0.2f, 0.5f + 0.1f, 0.6f - 0.2f}}});
  ExpectNear(table.values(0), {0.9376653, 1.8753306, 2.8129959, 3.7506611});
  ExpectNear(table.values(1), {4.8694000, 5.8799281, 6.7493281, 7.7598553});
  EXPECT_EQ(table.values(2), (std::vector<float>{9, 10, 11, 12}));
  ExpectNear(table.slots(0), {0.15});
  ExpectNear(table.slots(1), {0.18075});
  EXPECT_EQ(table.slots(2), std::vector<float>{0});
}

// Steps of (.1, .2) from `values`.
std::vector<float> FtrlAfter(int steps, std::map<std::string, double> numbers,
                             const std::vector<float>& values) {
  numbers.insert({{"learning_rate", 3}, {"initial_accumulator_value", 0.1}});
  TrainedRows table({"Ftrl", numbers}, {values});
  for (int step = 0; step < steps; ++step) table.Step({{0, {0.1f, 0.2f}}});
  return table.values(0);
}

TEST(PublishedRowNumbers, FtrlWithoutAccumulatorAndGradientIsZeroAsInTensorFlow) {
  TrainedRows table({"Ftrl", {{"learning_rate", 0.1}, {"initial_accumulator_value", 0}}}, {{1, 2}});
  table.Step({{0, {0, 0}}});
  EXPECT_EQ(table.values(0), std::vector<float>({0, 0}));
}

TEST(PublishedRowNumbers, TensorFlowsFtrlTest) {
  const std::map<std::string, double> l1 = {{"l1_regularization_strength", 0.001}};
  const std::map<std::string, double> both = {{"l1_regularization_strength", 0.001},
                                              {"l2_regularization_strength", 2}};
  std::map<std::string, double> all = both;
  all["l2_shrinkage_regularization_strength"] = 0.1;
  ExpectNear(FtrlAfter(3, {}, {0, 0}), {-2.60260963, -4.29698515});
  ExpectNear(FtrlAfter(3, {}, {1, 2}), {-2.55607247, -3.98729396});
  ExpectNear(FtrlAfter(10, l1, {1, 2}), {-7.66718769, -10.91273689});
  ExpectNear(FtrlAfter(10, both, {1, 2}), {-0.24059935, -0.46829352});
  ExpectNear(FtrlAfter(10, all, {1, 2}), {-0.22578995, -0.44345796});
}

TEST(PublishedRowNumbers, TensorFlowsFtrlTestOfRows) {
  TrainedRows table({"Ftrl",
                     {{"learning_rate", 3},
                      {"initial_accumulator_value", 0.1},
                      {"l1_regularization_strength", 0.001},
                      {"l2_regularization_strength", 2},
                      {"l2_shrinkage_regularization_strength", 0.1}}},
                    {{1}, {2}});
  for (int step = 0; step < 10; ++step) table.Step({{0, {0.1f}}});
  ExpectNear(table.values(0), {-0.22578995});
  EXPECT_EQ(table.values(1), std::vector<float>{2});
}

TEST(PublishedRowNumbers, TensorFlowsAdagradTest) {
  TrainedRows table(
      {"Adagrad", {{"learning_rate", 3}, {"initial_accumulator_value", 0.1}, {"epsilon", 1e-10}}},
      {{1}, {2}});
  for (int step = 0; step < 3; ++step) table.Step({{0, {0.1f}}});
  ExpectNear(table.values(0), {-1.60260987});
  EXPECT_EQ(table.values(1), std::vector<float>{2});
}

// The accumulator grows before it scales, as in TensorFlow, torch and FBGEMM. Systems that scale first give .6598564.
TEST(PublishedRowNumbers, TheAccumulatorGrowsBeforeItScales) {
  TrainedRows table(
      {"Adagrad", {{"learning_rate", 0.01}, {"initial_accumulator_value", 0.01}, {"epsilon", 1e-10}}},
      {{0.7306f}});
  for (const float g : {0.6039f, 0.4478f, 0.2304f}) table.Step({{0, {g}}});
  ExpectNear(table.values(0), {0.7119234}, 1e-4);
}

}  // namespace
}  // namespace cairn::embedding
