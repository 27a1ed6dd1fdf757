#include "optim/rules/adadelta.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "gtest/gtest.h"
#include "tests/unit/optim/trained_variable.h"

namespace cairn::optim {
namespace {

// Zeiler's Algorithm 1, its step multiplied by the rate.
TEST(Adadelta, TenStepsAgreeWithDouble) {
  const double rho = 0.9, epsilon = 1e-4;
  std::vector<double> gradients(4, 0), deltas(4, 0);
  ExpectTenStepsAgree({"Adadelta", {{"learning_rate", 2}, {"rho", rho}, {"epsilon", epsilon}}},
                      [&](int, size_t i, double g, double& w) {
                        gradients[i] = rho * gradients[i] + (1 - rho) * g * g;
                        const double delta =
                            -std::sqrt(deltas[i] + epsilon) / std::sqrt(gradients[i] + epsilon) * g;
                        deltas[i] = rho * deltas[i] + (1 - rho) * delta * delta;
                        w += 2 * delta;
                      });
}

TEST(Adadelta, HasKerasSlots) {
  const auto adadelta = MakeOptimizer({"Adadelta", {}}).value();
  ASSERT_EQ(adadelta->slot_names().size(), 2u);
  EXPECT_EQ(adadelta->slot_names()[0], "accumulated_grad");
  EXPECT_EQ(adadelta->slot_names()[1], "accumulated_delta_var");
}

}  // namespace
}  // namespace cairn::optim
