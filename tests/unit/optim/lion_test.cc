#include "optim/rules/lion.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "gtest/gtest.h"
#include "tests/unit/optim/trained_variable.h"

namespace cairn::optim {
namespace {

TEST(Lion, TenStepsAgreeWithDouble) {
  const double lr = 0.01, beta_1 = 0.9, beta_2 = 0.99;
  std::vector<double> m(4, 0);
  ExpectTenStepsAgree({"Lion", {{"learning_rate", lr}}}, [&](int, size_t i, double g, double& w) {
    const double direction = beta_1 * m[i] + (1 - beta_1) * g;
    w -= lr * (direction > 0 ? 1 : direction < 0 ? -1 : 0);
    m[i] = beta_2 * m[i] + (1 - beta_2) * g;
  });
}

TEST(Lion, AZeroGradientAtTheStartMovesNothing) {
  TrainedVariable variable({"Lion", {}}, {1, -2});
  variable.Step({0, -0.0f});
  EXPECT_EQ(variable.values(), (std::vector<float>{1, -2}));
}

}  // namespace
}  // namespace cairn::optim
