#include "embedding/optimizers/rules/skipped_adam_steps.h"

#include <cmath>
#include <tuple>
#include <vector>

#include "common/core/random.h"
#include "gtest/gtest.h"
#include "tests/unit/embedding/optimizers/trained_rows.h"

namespace cairn::embedding {
namespace {

// One element of dense Adam, in double.
struct DenseAdam {
  double beta_1, beta_2, epsilon, rate;
  double w = 1, m = 0, v = 0;
  int t = 0;

  void Step(double g) {
    ++t;
    m += (1 - beta_1) * (g - m);
    v += (1 - beta_2) * (g * g - v);
    w -= rate * std::sqrt(1 - std::pow(beta_2, t)) / (1 - std::pow(beta_1, t)) * m / (std::sqrt(v) + epsilon);
  }
};

// A row that is updated after gaps of these lengths, against dense Adam with zeros in between. `scale` is the size of
// the gradients; epsilon is 1e-7. Rates are small enough that w stays around 1.
void CompareWithDense(double beta_1, double beta_2, double scale, double tolerance) {
  constexpr double kRate = 0.001;
  TrainedRows table(
      {"Adam", {{"learning_rate", kRate}, {"beta_1", beta_1}, {"beta_2", beta_2}, {"catch_up", 1}}}, {{1}});
  DenseAdam dense{beta_1, beta_2, 1e-7, kRate};
  Random random(3, "gaps");
  for (const int gap : {0, 1, 0, 2, 5, 17, 60, 150, 300, 1000, 1, 0, 4000, 3, 12000, 9, 30000, 1}) {
    for (int k = 0; k < gap; ++k) {
      dense.Step(0);
      table.Step({});
    }
    ASSERT_NEAR(table.ReadValues(0)[0], dense.w, tolerance) << "read after a gap of " << gap;
    const float g = static_cast<float>(scale) * random.NextUniform(-1, 1);
    dense.Step(g);
    table.Step({{0, {g}}});
    ASSERT_NEAR(table.values(0)[0], dense.w, tolerance) << "updated after a gap of " << gap;
    ASSERT_NEAR(table.slots(0)[0] / scale, dense.m / scale, 1e-6) << "m after a gap of " << gap;
    ASSERT_NEAR(table.slots(0)[1] / scale / scale, dense.v / scale / scale, 1e-6)
        << "v after a gap of " << gap;
  }
}

TEST(AdamThatCatchesUp, IsDenseAdamWithZerosInBetween) {
  CompareWithDense(0.9, 0.999, 0.1, 2e-6);
}

TEST(AdamThatCatchesUp, HoldsForGradientsAsSmallAsEpsilon) {
  CompareWithDense(0.9, 0.999, 1e-6, 2e-6);
  CompareWithDense(0.9, 0.999, 1e-9, 2e-6);
}

TEST(AdamThatCatchesUp, HoldsAtTheLimitsOfTheBetas) {
  CompareWithDense(0, 0.99, 0.1, 2e-6);
  CompareWithDense(0.95, 0.99, 0.1, 2e-6);
  CompareWithDense(0.95, 0.9999, 0.1, 2e-6);
}

// The sums themselves, term by term. 1e-5, because S_3 of a few steps is the difference of two larger sums.
TEST(SkippedAdamSteps, SumsAreThoseOfTheTerms) {
  const SkippedAdamSteps steps(0.9, 0.999);
  const double x = 1 / std::sqrt(0.999), rho = 0.9 * x;
  for (const auto& [last, n] : std::vector<std::tuple<uint32_t, uint32_t>>{
           {0, 1}, {0, 7}, {1, 100}, {500, 30}, {18'000, 40}, {18'400, 200}, {1'000'000, 3}, {7, 5000}}) {
    double sums[4] = {};
    for (uint32_t k = 1; k <= n; ++k) {
      const double c = std::sqrt(1 - std::pow(0.999, last + k)) / (1 - std::pow(0.9, last + k));
      for (int j = 0; j < 4; ++j) sums[j] += c * std::pow(rho, k) * std::pow(std::pow(x, k) - 1, j);
    }
    const auto skipped = steps.Between(last, last + n);
    for (int j = 0; j < 4; ++j) {
      EXPECT_NEAR(skipped.sums[static_cast<size_t>(j)], sums[j], 1e-5 * sums[j])
          << last << " " << n << " " << j;
    }
    EXPECT_NEAR(skipped.v_decay, std::pow(0.999, n), 1e-6 * std::pow(0.999, n));
    EXPECT_NEAR(skipped.m_decay, std::pow(0.9, n), 1e-6 * std::pow(0.9, n) + 1e-10);
  }
}

TEST(SkippedAdamSteps, NoStepsChangeNothing) {
  const SkippedAdamSteps steps(0.9, 0.999);
  for (const uint32_t last : {0u, 1u, 77u, 1'000'000u}) {
    for (const uint32_t through : {last, last / 2}) {
      const auto skipped = steps.Between(last, through);
      EXPECT_EQ(skipped.sums, (std::array<float, 4>{}));
      EXPECT_EQ(skipped.m_decay, 1);
      EXPECT_EQ(skipped.v_decay, 1);
    }
  }
}

}  // namespace
}  // namespace cairn::embedding
