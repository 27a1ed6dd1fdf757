#include "common/system/ticker.h"

#include <atomic>
#include <chrono>
#include <latch>

#include "gtest/gtest.h"

namespace cairn {
namespace {

TEST(Ticker, CallsItsFunctionAgainAndAgain) {
  std::latch ticked(3);
  std::atomic<int> ticks{0};
  const Ticker ticker("test", std::chrono::milliseconds(1), [&] {
    if (++ticks <= 3) ticked.count_down();
  });
  ticked.wait();
}

TEST(Ticker, EndsWithoutWaitingForTheNextTick) {
  const auto begin = std::chrono::steady_clock::now();
  std::atomic<int> ticks{0};
  {
    const Ticker ticker("test", std::chrono::hours(1), [&] { ++ticks; });
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::minutes(1));
  EXPECT_EQ(ticks, 0);
}

}  // namespace
}  // namespace cairn
