#include "common/core/history.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>

#include "tests/support/fake_clock.h"

namespace cairn {
namespace {

using ::testing::ElementsAre;

TEST(History, PointsKeepTheRequestedSpacing) {
  test::FakeClock clock;
  History history(10, std::chrono::seconds(2));
  EXPECT_TRUE(history.Wants(clock.Now()));
  history.Add(clock.Now(), {1});
  clock.Advance(std::chrono::seconds(1));
  EXPECT_FALSE(history.Wants(clock.Now()));
  clock.Advance(std::chrono::seconds(1));
  EXPECT_TRUE(history.Wants(clock.Now()));
}

TEST(History, ALongRunIsCoveredByFewPoints) {
  test::FakeClock clock;
  History history(8, std::chrono::seconds(1));
  for (int second = 0; second < 1000; ++second) {
    if (history.Wants(clock.Now())) history.Add(clock.Now(), {static_cast<double>(second)});
    clock.Advance(std::chrono::seconds(1));
  }
  const auto points = history.points();
  EXPECT_GE(points.size(), 4u);
  EXPECT_LE(points.size(), 8u);
  EXPECT_EQ(points.front().seconds, 0);
  EXPECT_GE(points.back().seconds, 700);
  for (const History::Point& point : points) EXPECT_THAT(point.values, ElementsAre(point.seconds));
}

}  // namespace
}  // namespace cairn
