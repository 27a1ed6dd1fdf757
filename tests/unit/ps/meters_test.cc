#include "ps/meters.h"

#include <chrono>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cairn::ps {
namespace {

using std::chrono::seconds;

TEST(Meters, ARoundLastsFromItsFirstGradientToItsVersion) {
  Meters meters;
  const TimePoint start;
  meters.OnUpdate({{0, start + seconds(2)}, {1, start + seconds(1)}, {2, start + seconds(3)}},
                  start + seconds(4), start + seconds(6));
  EXPECT_EQ(meters.round_seconds.sum(), 5);
  EXPECT_EQ(meters.spread_seconds.sum(), 2);
  EXPECT_EQ(meters.apply_seconds.sum(), 2);
  const auto lateness = meters.lateness();
  ASSERT_EQ(lateness.size(), 1u);
  EXPECT_EQ(lateness.at(2).times_last, 1);
  EXPECT_EQ(lateness.at(2).seconds, 2);
}

TEST(Meters, ASingleWorkerIsNeverLate) {
  Meters meters;
  meters.OnUpdate({{0, TimePoint() + seconds(1)}}, TimePoint() + seconds(1), TimePoint() + seconds(2));
  EXPECT_EQ(meters.round_seconds.count(), 1);
  EXPECT_EQ(meters.spread_seconds.count(), 0);
  EXPECT_TRUE(meters.lateness().empty());
}

}  // namespace
}  // namespace cairn::ps
