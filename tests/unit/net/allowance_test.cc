#include "common/net/direct/allowance.h"

#include "gtest/gtest.h"

namespace cairn::net {
namespace {

using std::chrono::milliseconds;

class AllowanceTest : public testing::Test {
 protected:
  // Whether another payload may be sent, of so many bytes; then it is.
  bool Sends(uint64_t bytes) {
    if (allowance_.WaitsUntil(now_).has_value()) return false;
    allowance_.Add(bytes);
    return true;
  }
  Allowance allowance_;
  Allowance::TimePoint now_{std::chrono::hours(1)};
};

TEST_F(AllowanceTest, NobodyWaitsWhoWasToldNothing) {
  for (int i = 0; i < 100; ++i) EXPECT_TRUE(Sends(uint64_t{1} << 40));
}

TEST_F(AllowanceTest, OneIsBegunWhileItIsNotUsedUp) {
  allowance_.Set(150);
  EXPECT_TRUE(Sends(100));
  EXPECT_TRUE(Sends(100));
  EXPECT_FALSE(Sends(100));
  allowance_.Set(200);
  EXPECT_FALSE(Sends(100)) << "that many have been sent";
  allowance_.Set(201);
  EXPECT_TRUE(Sends(100));
  allowance_.Set(Allowance::kNoLimit);
  for (int i = 0; i < 100; ++i) EXPECT_TRUE(Sends(100));
}

TEST_F(AllowanceTest, LessThanBeforeIsOld) {
  allowance_.Set(150);
  allowance_.Set(50);
  EXPECT_TRUE(Sends(100));
  EXPECT_TRUE(Sends(100));
  allowance_.Set(Allowance::kNoLimit);
  allowance_.Set(300);  // of the next push
  EXPECT_TRUE(Sends(100));
  EXPECT_FALSE(Sends(100));
}

TEST_F(AllowanceTest, WhoHasWaitedLongEnoughGoesOn) {
  allowance_.Set(100);
  EXPECT_TRUE(Sends(100));
  EXPECT_EQ(allowance_.WaitsUntil(now_), now_ + Allowance::kPatience);
  now_ += Allowance::kPatience - milliseconds(1);
  EXPECT_FALSE(Sends(100));
  now_ += milliseconds(1);
  EXPECT_TRUE(Sends(100));
  EXPECT_TRUE(Sends(100));
  allowance_.Set(250);
  EXPECT_TRUE(Sends(100)) << "it came late";
  allowance_.Set(500);
  EXPECT_TRUE(Sends(100));
  EXPECT_FALSE(Sends(100));
}

TEST_F(AllowanceTest, EachThatAllowsMoreIsWaitedForAnew) {
  allowance_.Set(100);
  EXPECT_TRUE(Sends(500));
  for (uint64_t allowed = 200; allowed <= 500; allowed += 100) {
    EXPECT_FALSE(Sends(100));
    now_ += Allowance::kPatience - milliseconds(1);
    allowance_.Set(allowed);
  }
  EXPECT_FALSE(Sends(100));
  now_ += Allowance::kPatience - milliseconds(1);
  allowance_.Set(500);  // which is no more
  now_ += milliseconds(1);
  EXPECT_TRUE(Sends(100));
}

}  // namespace
}  // namespace cairn::net
