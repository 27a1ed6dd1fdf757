#include "common/net/data_channel/stream/busy_poll.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <vector>

namespace cairn::net {
namespace {

using std::chrono::microseconds;
using ::testing::Each;
using ::testing::ElementsAre;

struct FakeClock {
  using duration = std::chrono::nanoseconds;
  using rep = duration::rep;
  using period = duration::period;
  using time_point = std::chrono::time_point<FakeClock>;
  [[maybe_unused]] static constexpr bool is_steady = true;
  static time_point now() { return now_; }
  static inline time_point now_{duration(std::chrono::hours(1))};
};
using Poll = BusyPoll<FakeClock>;
constexpr Poll::Options kInExchanges;

constexpr int kTimeoutMs = 5000;
constexpr microseconds kAsking{1};

// Waits for an event that happens after `delay`. Returns the timeouts with which poll() was called.
std::vector<int> WaitFor(Poll& waits, microseconds delay, microseconds asking = kAsking) {
  std::vector<int> asked;
  const auto comes = FakeClock::now() + delay;
  const int ready = waits.Wait(kTimeoutMs, [&](int timeout_ms) {
    asked.push_back(timeout_ms);
    const auto until = FakeClock::now() + (timeout_ms == 0 ? asking : std::chrono::milliseconds(timeout_ms));
    FakeClock::now_ = std::min(until, std::max(FakeClock::now(), comes));
    if (timeout_ms == 0) FakeClock::now_ = until;
    return FakeClock::now() >= comes ? 1 : 0;
  });
  EXPECT_EQ(ready, 1);
  return asked;
}

void BecomeTrusted(Poll& waits) {
  for (int i = 0; i < Poll::kTrusted; ++i)
    EXPECT_THAT(WaitFor(waits, microseconds(20)), ElementsAre(kTimeoutMs));
}

TEST(BusyPoll, SpinsAfterShortWaits) {
  BusyPollers<FakeClock> pollers(1);
  Poll waits(pollers, kInExchanges);
  BecomeTrusted(waits);
  const std::vector<int> asked = WaitFor(waits, microseconds(10));
  EXPECT_EQ(asked.size(), 10u);
  EXPECT_THAT(asked, Each(0));
}

TEST(BusyPoll, SleepsAfterSpinningForALimitedTime) {
  BusyPollers<FakeClock> pollers(1);
  Poll waits(pollers, kInExchanges);
  BecomeTrusted(waits);
  const auto begin = FakeClock::now();
  const std::vector<int> asked = WaitFor(waits, std::chrono::seconds(3));
  EXPECT_EQ(FakeClock::now() - begin, std::chrono::seconds(3));
  EXPECT_EQ(asked.back(), kTimeoutMs);
  EXPECT_EQ(asked.size(), kInExchanges.awake / kAsking + 1u);
  EXPECT_THAT(WaitFor(waits, microseconds(10)), ElementsAre(kTimeoutMs)) << "not again at once";
}

TEST(BusyPoll, DoesNotSpinIfItComputesBetweenWaits) {
  BusyPollers<FakeClock> pollers(1);
  Poll waits(pollers, kInExchanges);
  for (int i = 0; i < 10; ++i) {
    FakeClock::now_ += std::chrono::milliseconds(1);
    EXPECT_THAT(WaitFor(waits, microseconds(10)), ElementsAre(kTimeoutMs));
  }
}

TEST(BusyPoll, DoesNotSpinAfterReceivingSomethingLarge) {
  BusyPollers<FakeClock> pollers(1);
  Poll waits(pollers, kInExchanges);
  BecomeTrusted(waits);
  waits.Distrust();
  EXPECT_THAT(WaitFor(waits, microseconds(10)), ElementsAre(kTimeoutMs));
}

TEST(BusyPoll, ABlockedCallerSpinsEvenAfterComputingOrReceivingSomethingLarge) {
  BusyPollers<FakeClock> pollers(1);
  Poll waits(pollers, {.exchanges_alone = false});
  BecomeTrusted(waits);
  waits.Distrust();
  FakeClock::now_ += std::chrono::milliseconds(1);
  EXPECT_THAT(WaitFor(waits, microseconds(10)), Each(0));
}

TEST(BusyPoll, StopsSpinningIfAnotherThreadWantsTheCore) {
  BusyPollers<FakeClock> pollers(1);
  Poll waits(pollers, kInExchanges);
  BecomeTrusted(waits);
  EXPECT_THAT(WaitFor(waits, microseconds(30), /*asking=*/microseconds(20)), ElementsAre(0, kTimeoutMs));
}

// Two threads, of which one may spin.
class TwoBusyPolls : public testing::Test {
 protected:
  // Lets both wait at the same time, for a few microseconds.
  void WaitTogether() {
    BecomeTrusted(one_);
    BecomeTrusted(other_);
    one_.Wait(kTimeoutMs, [&](int) {
      EXPECT_THAT(WaitFor(other_, microseconds(10)), ElementsAre(kTimeoutMs)) << "asleep";
      return 1;
    });
  }

  BusyPollers<FakeClock> pollers_{1};
  Poll one_{pollers_, kInExchanges}, other_{pollers_, kInExchanges};
};

TEST_F(TwoBusyPolls, NeitherSpinsIfBothWouldSpin) {
  WaitTogether();
  EXPECT_THAT(WaitFor(one_, microseconds(10)), ElementsAre(kTimeoutMs)) << "nor soon after";
}

TEST_F(TwoBusyPolls, OneAloneSpinsAgainAfterAWhile) {
  WaitTogether();
  FakeClock::now_ += BusyPollers<FakeClock>::kCrowded;
  BecomeTrusted(one_);
  EXPECT_THAT(WaitFor(one_, microseconds(10)), Each(0));
}

TEST_F(TwoBusyPolls, ASleepingThreadDoesNotKeepOthersFromSpinning) {
  BecomeTrusted(one_);
  one_.Wait(kTimeoutMs, [&](int timeout_ms) {
    FakeClock::now_ += timeout_ms == 0 ? kAsking : std::chrono::milliseconds(timeout_ms);
    if (timeout_ms != kTimeoutMs) return 0;
    BecomeTrusted(other_);
    EXPECT_THAT(WaitFor(other_, microseconds(10)), Each(0));
    return 1;
  });
}

TEST(BusyPoll, ATimeoutOfZeroPollsOnce) {
  BusyPollers<FakeClock> pollers(1);
  Poll waits(pollers, kInExchanges);
  BecomeTrusted(waits);
  std::vector<int> asked;
  EXPECT_EQ(waits.Wait(0, [&](int timeout_ms) { return asked.push_back(timeout_ms), 0; }), 0);
  EXPECT_THAT(asked, ElementsAre(0));
}

}  // namespace
}  // namespace cairn::net
