#include "optim/rules/ftrl.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "gtest/gtest.h"
#include "tests/unit/optim/trained_variable.h"

namespace cairn::optim {
namespace {

struct FtrlCase {
  double power, l1, l2, shrinkage, beta;
};

class FtrlAgainstDouble : public testing::TestWithParam<FtrlCase> {};

TEST_P(FtrlAgainstDouble, TenStepsAgree) {
  const FtrlCase& c = GetParam();
  const double lr = 0.1;
  std::vector<double> accumulator(4, 0.1), linear(4, 0);
  ExpectTenStepsAgree({"Ftrl",
                       {{"learning_rate", lr},
                        {"learning_rate_power", c.power},
                        {"l1_regularization_strength", c.l1},
                        {"l2_regularization_strength", c.l2},
                        {"l2_shrinkage_regularization_strength", c.shrinkage},
                        {"beta", c.beta}}},
                      [&](int, size_t i, double g, double& w) {
                        const double before = std::pow(accumulator[i], -c.power);
                        accumulator[i] += g * g;
                        const double after = std::pow(accumulator[i], -c.power);
                        linear[i] += g + 2 * c.shrinkage * w - (after - before) / lr * w;
                        const double quadratic = after / lr + 2 * (c.l2 + c.beta / (2 * lr));
                        const double sign = linear[i] < 0 ? -1 : 1;
                        w = std::abs(linear[i]) <= c.l1 ? 0 : (sign * c.l1 - linear[i]) / quadratic;
                      });
}

INSTANTIATE_TEST_SUITE_P(Forms, FtrlAgainstDouble,
                         testing::Values(FtrlCase{-0.5, 0, 0, 0, 0}, FtrlCase{-0.5, 0.2, 0.1, 0.01, 0.3},
                                         FtrlCase{-0.2, 0.05, 0.15, 0.01, 0.3}, FtrlCase{0, 0.1, 0, 0, 0}));

TEST(Ftrl, ARateOfZeroMovesNothing) {
  TrainedVariable variable({"Ftrl", {{"learning_rate", 0}}}, {1, -2});
  variable.Step({3, 4});
  EXPECT_EQ(variable.values(), (std::vector<float>{1, -2}));
}

TEST(Ftrl, TheAccumulatorStartsAtItsInitialValue) {
  const auto ftrl = MakeOptimizer({"Ftrl", {{"initial_accumulator_value", 0.5}}}).value();
  EXPECT_EQ(ftrl->initial_slot_value(0), 0.5f);
  EXPECT_EQ(ftrl->initial_slot_value(1), 0);
}

}  // namespace
}  // namespace cairn::optim
