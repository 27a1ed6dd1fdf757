#include "ps/shard/metrics.h"

#include <chrono>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cairn::ps {
namespace {

using std::chrono::seconds;

TEST(Metrics, ARoundLastsFromItsFirstGradientToItsVersion) {
  Metrics metrics;
  const TimePoint start;
  metrics.OnUpdate({{0, start + seconds(2)}, {1, start + seconds(1)}, {2, start + seconds(3)}},
                   start + seconds(4), start + seconds(6));
  EXPECT_EQ(metrics.round_seconds.sum(), 5);
  EXPECT_EQ(metrics.spread_seconds.sum(), 2);
  EXPECT_EQ(metrics.apply_seconds.sum(), 2);
  const auto lateness = metrics.lateness();
  ASSERT_EQ(lateness.size(), 1u);
  EXPECT_EQ(lateness.at(2).times_last, 1);
  EXPECT_EQ(lateness.at(2).seconds, 2);
}

TEST(Metrics, ASingleWorkerIsNeverLate) {
  Metrics metrics;
  metrics.OnUpdate({{0, TimePoint() + seconds(1)}}, TimePoint() + seconds(1), TimePoint() + seconds(2));
  EXPECT_EQ(metrics.round_seconds.count(), 1);
  EXPECT_EQ(metrics.spread_seconds.count(), 0);
  EXPECT_TRUE(metrics.lateness().empty());
}

}  // namespace
}  // namespace cairn::ps
