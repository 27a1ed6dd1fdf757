#include "common/net/data_channel/socket/descriptor_reserve.h"

#include <gtest/gtest.h>

#include <cerrno>

#include "common/system/limits.h"

namespace cairn::net {
namespace {

TEST(DescriptorReserve, IsAnEighthOfTheLimitAtMost64) {
  EXPECT_EQ(DescriptorReserve::Of(40), 5);
  EXPECT_EQ(DescriptorReserve::Of(512), 64);
  EXPECT_EQ(DescriptorReserve::Of(1'000'000), 64);
}

TEST(DescriptorReserve, AdmitsAConnectionWhileMoreThanTheReserveIsFree) {
  DescriptorReserve reserve;
  const auto free = static_cast<int>(DescriptorLimit() - DescriptorReserve::Of(DescriptorLimit()));
  EXPECT_TRUE(reserve.Admits(3));
  EXPECT_TRUE(reserve.Admits(free - 1));
  EXPECT_FALSE(reserve.Admits(free));
  errno = EAGAIN;
  EXPECT_FALSE(reserve.Admits(-1));
}

}  // namespace
}  // namespace cairn::net
