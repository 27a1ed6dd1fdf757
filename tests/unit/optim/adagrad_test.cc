#include "optim/rules/adagrad.h"

#include <cmath>
#include <vector>

#include "gtest/gtest.h"
#include "tests/unit/optim/trained_variable.h"

namespace cairn::optim {
namespace {

TEST(Adagrad, MatchesTensorFlowsPublishedSteps) {
  const OptimizerConfig config{"Adagrad", {{"learning_rate", 3}, {"initial_accumulator_value", 0.1}}};
  TrainedVariable var0(config, {1, 2});
  TrainedVariable var1(config, {3, 4});
  for (int step = 0; step < 3; ++step) {
    var0.Step({0.1f, 0.1f});
    var1.Step({0.01f, 0.01f});
  }
  // 2e-6: Keras' epsilon of 1e-7 under the root, which TensorFlow 1 lacks, changes var0 by 1.1e-6 in
  // three steps.
  ExpectNear(var0.values(), {-1.6026098, -0.6026098}, 2e-6);
  ExpectNear(var1.values(), {2.7156792, 3.7156792}, 2e-6);
}

TEST(Adagrad, TheAccumulatorStartsAtItsInitialValue) {
  const auto adagrad = MakeOptimizer({"Adagrad", {{"initial_accumulator_value", 0.5}}}).value();
  ASSERT_EQ(adagrad->slot_names().size(), 1u);
  EXPECT_EQ(adagrad->slot_names()[0], "accumulator");
  EXPECT_EQ(adagrad->initial_slot_value(0), 0.5f);
}

TEST(Adagrad, TenStepsAgreeWithDouble) {
  TrainedVariable variable({"Adagrad", {{"learning_rate", 0.1}}}, {1, 2, -3, 0.5});
  std::vector<double> w = {1, 2, -3, 0.5};
  std::vector<double> sum(4, 0.1);
  for (int step = 1; step <= 10; ++step) {
    const std::vector<float> g = WavyGradient(step);
    variable.Step(g);
    for (size_t i = 0; i < w.size(); ++i) {
      sum[i] += static_cast<double>(g[i]) * g[i];
      w[i] -= 0.1 * g[i] / std::sqrt(sum[i] + 1e-7);
    }
  }
  ExpectNear(variable.values(), w);
}

}  // namespace
}  // namespace cairn::optim
