#include "nn/metrics/predictions.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "common/core/random.h"

namespace cairn::nn {
namespace {

TEST(Predictions, AnIndexIsThatOfTheLargestExactlyIfArgmaxGivesIt) {
  Random random(1, "predictions_test");
  for (int trial = 0; trial < 3000; ++trial) {
    const auto count = 1 + static_cast<size_t>(random.NextUniform(0, trial % 10 == 0 ? 700 : 6));
    std::vector<float> row(count);
    // Few values, so that many are equal; some are NaN.
    for (float& value : row) value = std::floor(random.NextUniform(0, 4));
    if (trial % 3 == 0) row[static_cast<size_t>(trial) % count] = NAN;
    const size_t argmax = IndexOfLargest(row);
    for (size_t i = 0; i < count; ++i)
      EXPECT_EQ(IsIndexOfLargest(row, i), i == argmax) << i << " of " << count;
  }
}

}  // namespace
}  // namespace cairn::nn
