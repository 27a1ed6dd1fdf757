#include "kernels/cpu/log_sum.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "common/core/random.h"

namespace cairn::kernels::cpu {
namespace {

TEST(LogSum, IsThatOfDoublePrecisionForAnyNumberOfLogits) {
  Random random(1, "log_sum_test");
  for (const size_t count : {1, 2, 7, 8, 9, 64, 1023, 1024, 1025, 50257}) {
    std::vector<float> logits(count);
    for (float& logit : logits) logit = random.NextUniform(-30, 10);
    double sum = 0;
    const float largest = *std::max_element(logits.begin(), logits.end());
    for (const float logit : logits) sum += std::exp(double{logit} - double{largest});
    const LogSum row = LogSumOf(logits);
    EXPECT_EQ(row.largest, largest) << count;
    EXPECT_NEAR(row.log_sum, std::log(sum), 2e-7 * (1 + std::log(sum))) << count;
  }
}

TEST(LogSum, LogitsThatAreMasked) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  std::vector<float> logits(21, -kInfinity);
  logits[3] = logits[20] = 2;
  const LogSum row = LogSumOf(logits);
  EXPECT_EQ(row.largest, 2);
  EXPECT_NEAR(row.log_sum, std::log(2.0), 1e-7);
  logits[4] = NAN;
  EXPECT_TRUE(std::isnan(LogSumOf(logits).log_sum));
}

}  // namespace
}  // namespace cairn::kernels::cpu
