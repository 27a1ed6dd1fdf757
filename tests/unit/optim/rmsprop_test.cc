#include "optim/rules/rmsprop.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "gtest/gtest.h"
#include "tests/unit/optim/trained_variable.h"

namespace cairn::optim {
namespace {

struct Form {
  double momentum;
  bool centered;
};

class RmspropAgainstDouble : public testing::TestWithParam<Form> {};

// If centered, the step is divided by the root of the variance, otherwise of the mean of squares.
TEST_P(RmspropAgainstDouble, TenStepsAgree) {
  const double lr = 0.01, rho = 0.9, epsilon = 1e-3, momentum = GetParam().momentum;
  const bool centered = GetParam().centered;
  std::vector<double> square(4, 0), mean(4, 0), moving(4, 0);
  ExpectTenStepsAgree({"RMSprop",
                       {{"learning_rate", lr},
                        {"rho", rho},
                        {"epsilon", epsilon},
                        {"momentum", momentum},
                        {"centered", centered ? 1 : 0}}},
                      [&](int, size_t i, double g, double& w) {
                        square[i] = rho * square[i] + (1 - rho) * g * g;
                        mean[i] = rho * mean[i] + (1 - rho) * g;
                        const double variance = centered ? square[i] - mean[i] * mean[i] : square[i];
                        moving[i] = momentum * moving[i] + lr * g / std::sqrt(variance + epsilon);
                        w -= moving[i];
                      });
}

INSTANTIATE_TEST_SUITE_P(Forms, RmspropAgainstDouble,
                         testing::Values(Form{0, false}, Form{0.9, false}, Form{0, true}, Form{0.9, true}));

TEST(Rmsprop, HasTheSlotsOfItsForm) {
  const auto names = [](const OptimizerConfig& config) {
    const auto optimizer = MakeOptimizer(config).value();
    return std::vector<absl::string_view>(optimizer->slot_names().begin(), optimizer->slot_names().end());
  };
  EXPECT_EQ(names({"RMSprop", {}}), (std::vector<absl::string_view>{"velocity"}));
  EXPECT_EQ(names({"RMSprop", {{"momentum", 0.5}, {"centered", 1}}}),
            (std::vector<absl::string_view>{"velocity", "momentum", "average_gradient"}));
}

TEST(Rmsprop, AVarianceRoundedBelowZeroIsZero) {
  TrainedVariable variable({"RMSprop", {{"centered", 1}, {"rho", 0.5}, {"epsilon", 1e-30}}},
                           std::vector<float>(50, 1));
  std::vector<float> gradient;
  for (int i = 0; i < 50; ++i) gradient.push_back(1 + 0.01f * static_cast<float>(i));
  for (int step = 0; step < 200; ++step) variable.Step(gradient);  // a constant has no variance
  for (float value : variable.values()) ASSERT_FALSE(std::isnan(value));
}

}  // namespace
}  // namespace cairn::optim
