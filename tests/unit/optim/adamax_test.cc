#include "optim/rules/adamax.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "gtest/gtest.h"
#include "tests/unit/optim/trained_variable.h"

namespace cairn::optim {
namespace {

// Algorithm 2 of the paper, with epsilon where Keras has it.
TEST(Adamax, TenStepsAgreeWithDouble) {
  const double lr = 0.1, beta_1 = 0.9, beta_2 = 0.8, epsilon = 1e-3;
  std::vector<double> m(4, 0), u(4, 0);
  ExpectTenStepsAgree({"Adamax", {{"learning_rate", lr}, {"beta_2", beta_2}, {"epsilon", epsilon}}},
                      [&](int t, size_t i, double g, double& w) {
                        m[i] = beta_1 * m[i] + (1 - beta_1) * g;
                        u[i] = std::max(beta_2 * u[i], std::abs(g));
                        w -= lr / (1 - std::pow(beta_1, t)) * m[i] / (u[i] + epsilon);
                      });
}

}  // namespace
}  // namespace cairn::optim
