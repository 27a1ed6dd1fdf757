#include "common/system/process_usage.h"

#include <gtest/gtest.h>

#include <chrono>
#include <vector>

namespace cairn {
namespace {

TEST(ProcessUsage, GrowsWithTheMemoryOfTheProcess) {
  const ProcessUsage before = UsageOfThisProcess();
  EXPECT_GT(before.resident_bytes, 1 << 20);
  EXPECT_GE(before.virtual_bytes, before.resident_bytes);
  EXPECT_GE(before.threads, 1);
  EXPECT_GE(before.open_files, 3);
  EXPECT_GT(before.most_open_files, before.open_files);
  const double now =
      std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  EXPECT_LE(before.start_unix_seconds, now + 2);
  EXPECT_GT(before.start_unix_seconds, now - 24 * 3600);

  constexpr size_t kBytes = size_t{64} << 20;
  const std::vector<char> taken(kBytes, 'x');
  EXPECT_GE(UsageOfThisProcess().resident_bytes, before.resident_bytes + static_cast<int64_t>(kBytes / 2));
  EXPECT_EQ(taken.back(), 'x');
}

}  // namespace
}  // namespace cairn
