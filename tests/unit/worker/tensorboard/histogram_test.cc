#include "worker/tensorboard/histogram.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <numeric>
#include <vector>

namespace cairn::worker {
namespace {

TEST(HistogramOf, EveryElementIsBetweenTheLimitsOfItsBucket) {
  const std::vector<float> values = {-3, -0.5f, 0, 1e-20f, 0.5f, 0.5f, 1000};
  const tensorboard::v1::Histogram histogram = HistogramOf(values);
  ASSERT_EQ(histogram.bucket_size(), histogram.bucket_limit_size());
  double before = -std::numeric_limits<double>::max();
  for (int i = 0; i < histogram.bucket_size(); ++i) {
    const double limit = histogram.bucket_limit(i);
    EXPECT_GT(limit, i == 0 ? -std::numeric_limits<double>::infinity() : before);
    double inside = 0;
    for (const float value : values) inside += value < limit && value >= before;
    EXPECT_EQ(histogram.bucket(i), inside) << "below " << limit;
    before = limit;
  }
  EXPECT_EQ(histogram.num(), 7);
  EXPECT_EQ(histogram.min(), -3);
  EXPECT_EQ(histogram.max(), 1000);
  EXPECT_DOUBLE_EQ(histogram.sum(), 998 - 0.5 + 1e-20f - 0.5 + 0.5);
  EXPECT_DOUBLE_EQ(histogram.sum_squares(), 1000009.75);
}

TEST(HistogramOf, LimitsGrowByATenth) {
  const tensorboard::v1::Histogram histogram = HistogramOf(std::vector<float>{1, 1});
  ASSERT_EQ(histogram.bucket_size(), 3);  // below, theirs, above
  EXPECT_EQ(histogram.bucket(1), 2);
  EXPECT_NEAR(histogram.bucket_limit(1) / histogram.bucket_limit(0), 1.1, 1e-12);
}

TEST(HistogramOf, NumbersThatAreNotFiniteAreIgnored) {
  const float nan = std::numeric_limits<float>::quiet_NaN(), inf = std::numeric_limits<float>::infinity();
  EXPECT_EQ(HistogramOf(std::vector<float>{nan, inf, -inf, 2}).num(), 1);
  const tensorboard::v1::Histogram none = HistogramOf(std::vector<float>{nan});
  EXPECT_EQ(none.num(), 0);
  EXPECT_EQ(none.min(), 0);
}

}  // namespace
}  // namespace cairn::worker
