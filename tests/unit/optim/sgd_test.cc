#include "optim/rules/sgd.h"

#include <ostream>
#include <vector>

#include "gtest/gtest.h"
#include "tests/unit/optim/trained_variable.h"

namespace cairn::optim {
namespace {

TEST(Sgd, MatchesTensorFlowsPublishedStep) {
  TrainedVariable var0({"SGD", {{"learning_rate", 3}}}, {1, 2});
  TrainedVariable var1({"SGD", {{"learning_rate", 3}}}, {3, 4});
  var0.Step({0.1f, 0.1f});
  var1.Step({0.01f, 0.01f});
  ExpectNear(var0.values(), {0.7, 1.7});
  ExpectNear(var1.values(), {2.97, 3.97});
}

TEST(Sgd, MomentumMatchesTensorFlowsPublishedSteps) {
  const OptimizerConfig config{"SGD", {{"learning_rate", 2}, {"momentum", 0.9}}};
  TrainedVariable var0(config, {1, 2});
  TrainedVariable var1(config, {3, 4});
  var0.Step({0.1f, 0.1f});
  var1.Step({0.01f, 0.01f});
  ExpectNear(var0.values(), {0.8, 1.8});
  ExpectNear(var1.values(), {2.98, 3.98});
  var0.Step({0.1f, 0.1f});
  var1.Step({0.01f, 0.01f});
  ExpectNear(var0.values(), {0.42, 1.42});
  ExpectNear(var1.values(), {2.942, 3.942});
}

TEST(Sgd, MomentumKeepsTheRateInItsSlotAsKerasDoes) {
  TrainedVariable variable({"SGD", {{"learning_rate", 0.5}, {"momentum", 0.5}}}, {1});
  variable.Step({1});
  EXPECT_EQ(variable.slots()[0][0], -0.5f);
  EXPECT_EQ(variable.values()[0], 0.5f);
  variable.Step({1});
  EXPECT_EQ(variable.slots()[0][0], -0.75f);
  EXPECT_EQ(variable.values()[0], -0.25f);
}

TEST(Sgd, NesterovByHandArithmetic) {
  TrainedVariable variable({"SGD", {{"learning_rate", 0.5}, {"momentum", 0.5}, {"nesterov", 1}}}, {1});
  variable.Step({1});  // m = -0.5; w = 1 + 0.5 * -0.5 - 0.5
  EXPECT_EQ(variable.values()[0], 0.25f);
  variable.Step({1});  // m = -0.75; w = 0.25 + 0.5 * -0.75 - 0.5
  EXPECT_EQ(variable.values()[0], -0.625f);
}

TEST(Sgd, HasASlotOnlyWithMomentum) {
  EXPECT_TRUE(MakeOptimizer({"SGD", {}}).value()->slot_names().empty());
  const auto with_momentum = MakeOptimizer({"SGD", {{"momentum", 0.9}}}).value();
  ASSERT_EQ(with_momentum->slot_names().size(), 1u);
  EXPECT_EQ(with_momentum->slot_names()[0], "momentum");
  EXPECT_EQ(with_momentum->initial_slot_value(0), 0);
}

TEST(Sgd, TakesTheRateOfTheStepNotTheConfiguredOne) {
  const auto sgd = MakeOptimizer({"SGD", {{"learning_rate", 3}}}).value();
  const std::vector<float> gradient = {2};
  std::vector<float> values = {1};
  sgd->rule().Update({.t = 7, .learning_rate = 0.25f}, values, gradient, {}, values.data());
  EXPECT_EQ(values[0], 0.5f);
}

struct MomentumCase {
  const char* name;
  double momentum;
  bool nesterov;
};

void PrintTo(const MomentumCase& c, std::ostream* out) {
  *out << c.name;
}

class SgdAgainstDouble : public testing::TestWithParam<MomentumCase> {};

// TensorFlow 1's form, in which the slot holds gradients: a = mu a + g; w -= lr a, or with Nesterov w -= lr
// (g + mu a).
TEST_P(SgdAgainstDouble, TenStepsAgree) {
  const MomentumCase& c = GetParam();
  TrainedVariable variable(
      {"SGD", {{"learning_rate", 0.1}, {"momentum", c.momentum}, {"nesterov", c.nesterov ? 1 : 0}}},
      {1, 2, -3, 0.5});
  std::vector<double> w = {1, 2, -3, 0.5};
  std::vector<double> a(4, 0);
  for (int step = 1; step <= 10; ++step) {
    const std::vector<float> g = WavyGradient(step);
    variable.Step(g);
    for (size_t i = 0; i < w.size(); ++i) {
      a[i] = c.momentum * a[i] + g[i];
      w[i] -= 0.1 * (c.nesterov ? g[i] + c.momentum * a[i] : a[i]);
    }
  }
  ExpectNear(variable.values(), w);
}

INSTANTIATE_TEST_SUITE_P(Forms, SgdAgainstDouble,
                         testing::Values(MomentumCase{"Plain", 0, false},
                                         MomentumCase{"Momentum", 0.9, false},
                                         MomentumCase{"Nesterov", 0.9, true},
                                         MomentumCase{"MomentumOfOne", 1, false}));

}  // namespace
}  // namespace cairn::optim
