#include "optim/rules/nadam.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "gtest/gtest.h"
#include "tests/unit/optim/trained_variable.h"

namespace cairn::optim {
namespace {

struct Reference {
  double lr = 0.01, beta_1 = 0.9, beta_2 = 0.999, epsilon = 1e-7;
  double product = 1, m = 0, v = 0, w = 1;

  // Dozat's Algorithm 8, with the product of momenta carried from step to step.
  void Step(int t, double g) {
    const double u = beta_1 * (1 - 0.5 * std::pow(0.96, t));
    const double u_next = beta_1 * (1 - 0.5 * std::pow(0.96, t + 1));
    product *= u;
    m = beta_1 * m + (1 - beta_1) * g;
    v = beta_2 * v + (1 - beta_2) * g * g;
    const double m_hat = u_next * m / (1 - product * u_next) + (1 - u) * g / (1 - product);
    w -= lr * m_hat / (std::sqrt(v / (1 - std::pow(beta_2, t))) + epsilon);
  }
};

TEST(Nadam, TenStepsAgreeWithDouble) {
  std::vector<Reference> references(4);
  ExpectTenStepsAgree({"Nadam", {{"learning_rate", 0.01}}}, [&](int t, size_t i, double g, double& w) {
    references[i].w = w;
    references[i].Step(t, g);
    w = references[i].w;
  });
}

// At beta_1 = 0.9999 the product of momenta still matters long after its warm-up.
TEST(Nadam, TwoThousandStepsAgreeWithDouble) {
  TrainedVariable variable({"Nadam", {{"learning_rate", 1e-4}, {"beta_1", 0.9999}}}, {1});
  Reference reference{.lr = 1e-4, .beta_1 = 0.9999};
  for (int t = 1; t <= 2000; ++t) {
    const float g = t % 3 == 0 ? -0.5f : 0.25f;
    variable.Step({g});
    reference.Step(t, g);
  }
  EXPECT_NEAR(variable.values()[0], reference.w, 2e-5);  // 2,000 random roundings of 6e-8: 3e-6
}

}  // namespace
}  // namespace cairn::optim
