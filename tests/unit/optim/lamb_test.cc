#include "optim/rules/lamb.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "gtest/gtest.h"
#include "tests/unit/optim/trained_variable.h"

namespace cairn::optim {
namespace {

// Algorithm 2 of the paper, the norms over all four elements.
void StepInDouble(int t, double lr, const std::vector<float>& g, std::vector<double>& m,
                  std::vector<double>& v, std::vector<double>& w) {
  const double beta_1 = 0.9, beta_2 = 0.999, epsilon = 1e-7;
  std::vector<double> direction(w.size());
  double of_values = 0, of_direction = 0;
  for (size_t i = 0; i < w.size(); ++i) {
    const double gi = g[i];
    m[i] = beta_1 * m[i] + (1 - beta_1) * gi;
    v[i] = beta_2 * v[i] + (1 - beta_2) * gi * gi;
    direction[i] = m[i] / (1 - std::pow(beta_1, t)) / (std::sqrt(v[i] / (1 - std::pow(beta_2, t))) + epsilon);
    of_values += w[i] * w[i];
    of_direction += direction[i] * direction[i];
  }
  for (size_t i = 0; i < w.size(); ++i) w[i] -= lr * std::sqrt(of_values / of_direction) * direction[i];
}

TEST(Lamb, TenStepsAgreeWithDouble) {
  TrainedVariable variable({"Lamb", {{"learning_rate", 0.01}}}, {1, 2, -3, 0.5});
  std::vector<double> w = {1, 2, -3, 0.5}, m(4, 0), v(4, 0);
  for (int t = 1; t <= 10; ++t) {
    variable.Step(WavyGradient(t));
    StepInDouble(t, 0.01, WavyGradient(t), m, v, w);
  }
  ExpectNear(variable.values(), w);
}

TEST(Lamb, NormsAreTakenOfTheDecayedValues) {
  TrainedVariable variable({"Lamb", {{"learning_rate", 0.01}, {"weight_decay", 5}}}, {1, 2, -3, 0.5});
  std::vector<double> w = {1, 2, -3, 0.5}, m(4, 0), v(4, 0);
  for (int t = 1; t <= 10; ++t) {
    variable.Step(WavyGradient(t));
    for (double& value : w) value *= 1 - 0.01 * 5;
    StepInDouble(t, 0.01, WavyGradient(t), m, v, w);
  }
  ExpectNear(variable.values(), w);
}

TEST(Lamb, ValuesOfZeroMoveAtThePlainRate) {
  TrainedVariable variable({"Lamb", {{"learning_rate", 0.5}}}, {0});
  variable.Step({1});
  EXPECT_NEAR(variable.values()[0], -0.5, 1e-6);
}

TEST(Lamb, ADirectionOfZeroMovesNothing) {
  TrainedVariable variable({"Lamb", {}}, {1, -2});
  variable.Step({0, 0});
  EXPECT_EQ(variable.values(), (std::vector<float>{1, -2}));
}

}  // namespace
}  // namespace cairn::optim
