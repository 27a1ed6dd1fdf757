#include "optim/rules/adam.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "gtest/gtest.h"
#include "tests/unit/optim/trained_variable.h"

namespace cairn::optim {
namespace {

// TensorFlow's tests set epsilon to 1e-8; Keras' default is 1e-7.
const OptimizerConfig kTensorFlowsAdam{"Adam", {{"learning_rate", 0.001}, {"epsilon", 1e-8}}};

TEST(Adam, MatchesTensorFlowsPublishedSteps) {
  TrainedVariable var0(kTensorFlowsAdam, {1});
  TrainedVariable var1(kTensorFlowsAdam, {3});
  const double expected0[] = {0.9990000032, 0.9980000054, 0.9970000072};
  const double expected1[] = {2.9990000316, 2.9980000540, 2.9970000723};
  for (int step = 0; step < 3; ++step) {
    var0.Step({0.1f});
    var1.Step({0.01f});
    EXPECT_NEAR(var0.values()[0], expected0[step], 1e-6);
    EXPECT_NEAR(var1.values()[0], expected1[step], 1e-6);
  }
}

TEST(Adam, EpsilonIsOutsideTheBiasCorrection) {
  TrainedVariable variable(kTensorFlowsAdam, {1});
  for (int step = 0; step < 3; ++step) variable.Step({1e-7f});
  // 0.9972727273 would be the result of the paper's Algorithm 1, with epsilon inside.
  EXPECT_NEAR(variable.values()[0], 0.9990970083, 1e-6);
}

TEST(Adam, StartsAtTheGivenStep) {
  const auto adam = MakeOptimizer(kTensorFlowsAdam).value();
  const std::vector<float> gradient = {0.1f};
  std::vector<float> values = {1};
  float m = 0, v = 0;
  const Slot slots[] = {InPlace(&m), InPlace(&v)};
  adam->rule().Update({.t = 1000000, .learning_rate = 0.001f}, values, gradient, slots, values.data());
  // The bias correction is 1 by now: m = 0.01, v = 1e-5, w = 1 - 0.001 * 0.01 / sqrt(1e-5).
  EXPECT_NEAR(values[0], 1 - 0.001 * 0.01 / std::sqrt(1e-5), 1e-7);
}

TEST(Adam, AZeroGradientAtTheStartMovesNothing) {
  TrainedVariable variable({"Adam", {}}, {1, -2});
  variable.Step({0, 0});
  EXPECT_EQ(variable.values(), (std::vector<float>{1, -2}));
}

TEST(Adam, HasKerasDefaultsAndSlots) {
  const auto adam = MakeOptimizer({"Adam", {}}).value();
  EXPECT_EQ(adam->learning_rate(0), 0.001f);
  ASSERT_EQ(adam->slot_names().size(), 2u);
  EXPECT_EQ(adam->slot_names()[0], "m");
  EXPECT_EQ(adam->slot_names()[1], "v");
  EXPECT_EQ(adam->initial_slot_value(0), 0);
  EXPECT_EQ(adam->initial_slot_value(1), 0);
}

TEST(Adam, AmsGradNeverForgetsTheLargestSecondMoment) {
  const double lr = 0.01, beta_1 = 0.9, beta_2 = 0.9, epsilon = 1e-7;
  std::vector<double> m(4, 0), v(4, 0), v_hat(4, 0);
  ExpectTenStepsAgree({"Adam", {{"learning_rate", lr}, {"beta_2", beta_2}, {"amsgrad", 1}}},
                      [&](int t, size_t i, double g, double& w) {
                        m[i] = beta_1 * m[i] + (1 - beta_1) * g;
                        v[i] = beta_2 * v[i] + (1 - beta_2) * g * g;
                        v_hat[i] = std::max(v_hat[i], v[i]);
                        const double alpha =
                            lr * std::sqrt(1 - std::pow(beta_2, t)) / (1 - std::pow(beta_1, t));
                        w -= alpha * m[i] / (std::sqrt(v_hat[i]) + epsilon);
                      });
  EXPECT_EQ(MakeOptimizer({"Adam", {{"amsgrad", 1}}}).value()->slot_names().back(), "vhat");
}

TEST(AdamW, IsAdamOnValuesThatDecay) {
  TrainedVariable adam({"Adam", {{"learning_rate", 0.5}, {"weight_decay", 0.004}}}, {1, -2});
  TrainedVariable adam_w({"AdamW", {{"learning_rate", 0.5}}}, {1, -2});
  for (int step = 1; step <= 10; ++step) {
    adam.Step({0.1f * static_cast<float>(step), -1});
    adam_w.Step({0.1f * static_cast<float>(step), -1});
  }
  EXPECT_EQ(adam_w.values(), adam.values());
  EXPECT_EQ(adam_w.optimizer().name(), "AdamW");
}

// With hats, as in the paper's Algorithm 1; epsilon / sqrt(1 - beta_2^t) corresponds to Keras' placement.
TEST(Adam, TenStepsAgreeWithDouble) {
  const double lr = 0.01, beta_1 = 0.9, beta_2 = 0.999, epsilon = 1e-7;
  TrainedVariable variable({"Adam", {{"learning_rate", lr}}}, {1, 2, -3, 0.5});
  std::vector<double> w = {1, 2, -3, 0.5};
  std::vector<double> m(4, 0), v(4, 0);
  for (int t = 1; t <= 10; ++t) {
    const std::vector<float> g = WavyGradient(t);
    variable.Step(g);
    for (size_t i = 0; i < w.size(); ++i) {
      const double gi = g[i];
      m[i] = beta_1 * m[i] + (1 - beta_1) * gi;
      v[i] = beta_2 * v[i] + (1 - beta_2) * gi * gi;
      const double m_hat = m[i] / (1 - std::pow(beta_1, t));
      const double v_hat = v[i] / (1 - std::pow(beta_2, t));
      w[i] -= lr * m_hat / (std::sqrt(v_hat) + epsilon / std::sqrt(1 - std::pow(beta_2, t)));
    }
  }
  ExpectNear(variable.values(), w);
}

}  // namespace
}  // namespace cairn::optim
