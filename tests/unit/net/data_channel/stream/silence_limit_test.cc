#include "common/net/data_channel/stream/silence_limit.h"

#include "gtest/gtest.h"

namespace cairn::net {
namespace {

using std::chrono::milliseconds;

const SilenceLimit::TimePoint kStart{};
bool Owes() {
  return true;
}
bool OwesNothing() {
  return false;
}

TEST(SilenceLimit, TheFirstMessageHasALimitOfItsOwn) {
  SilenceLimit limit(milliseconds(20), milliseconds(100), kStart);
  EXPECT_EQ(limit.Left(kStart + milliseconds(5), false, Owes), milliseconds(15));
  EXPECT_EQ(limit.Left(kStart + milliseconds(20), false, Owes), milliseconds(0));
}

TEST(SilenceLimit, EachMessageStartsTheLimitAgain) {
  SilenceLimit limit(milliseconds(20), milliseconds(100), kStart);
  EXPECT_EQ(limit.Left(kStart + milliseconds(10), true, OwesNothing), milliseconds(100));
  EXPECT_EQ(limit.Left(kStart + milliseconds(100), true, OwesNothing), milliseconds(100));
  EXPECT_EQ(limit.Left(kStart + milliseconds(200), false, OwesNothing), milliseconds(0));
}

TEST(SilenceLimit, AClientThatWaitsForAnAnswerMayBeSilent) {
  SilenceLimit limit(milliseconds(20), milliseconds(100), kStart);
  EXPECT_EQ(limit.Left(kStart, true, Owes), milliseconds(100));
  EXPECT_EQ(limit.Left(kStart + milliseconds(150), false, Owes), milliseconds(100));
  EXPECT_EQ(limit.Left(kStart + milliseconds(249), false, Owes), milliseconds(1));
  EXPECT_EQ(limit.Left(kStart + milliseconds(250), false, OwesNothing), milliseconds(0));
}

}  // namespace
}  // namespace cairn::net
