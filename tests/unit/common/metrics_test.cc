#include "common/core/metrics.h"

#include <gtest/gtest.h>

#include <thread>

namespace cairn {
namespace {

TEST(Distribution, AValueEqualToALimitIsInItsBucket) {
  Distribution distribution({1, 2});
  for (const double value : {0.5, 1.0, 1.5, 2.0, 2.5}) distribution.Add(value);
  EXPECT_EQ(distribution.count_in(0), 2);
  EXPECT_EQ(distribution.count_in(1), 2);
  EXPECT_EQ(distribution.count_in(2), 1);
  EXPECT_EQ(distribution.count(), 5);
  EXPECT_EQ(distribution.sum(), 7.5);
}

TEST(Distribution, CountsTheValuesOfSeveralThreads) {
  Distribution distribution({1});
  Counter counter;
  const auto add = [&] {
    for (int i = 0; i < 1000; ++i) {
      distribution.Add(0.5);
      counter.Add(2);
    }
  };
  std::thread other(add);
  add();
  other.join();
  EXPECT_EQ(distribution.count(), 2000);
  EXPECT_EQ(distribution.sum(), 1000);
  EXPECT_EQ(counter.value(), 4000);
}

}  // namespace
}  // namespace cairn
