#include "common/memory/memory_size.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

namespace cairn {
namespace {

TEST(ParseMemorySize, AcceptsBytesAndBothKindsOfUnits) {
  EXPECT_EQ(ParseMemorySize("1000000").value(), 1000000);
  EXPECT_EQ(ParseMemorySize("7B").value(), 7);
  EXPECT_EQ(ParseMemorySize("500MB").value(), 500'000'000);
  EXPECT_EQ(ParseMemorySize("4GiB").value(), int64_t{4} << 30);
  EXPECT_EQ(ParseMemorySize("1.5KiB").value(), 1536);
}

TEST(ParseMemorySize, QuotesInvalidText) {
  for (const char* text :
       {"", "GiB", "4 GiB", "4gib", "4G", "-1", "0", "0.1", "1.2.3MB", "1e9", "nan", "9999999999TiB"}) {
    const absl::Status status = ParseMemorySize(text).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_NE(status.message().find("'" + std::string(text) + "'"), absl::string_view::npos) << status;
  }
}

TEST(InGiB, HasThreeSignificantDigits) {
  EXPECT_EQ(InGiB(0x1p30), "1 GiB");
  EXPECT_EQ(InGiB(2.5 * 0x1p30), "2.5 GiB");
  EXPECT_EQ(InGiB(0x1p29), "0.5 GiB");
  EXPECT_EQ(InGiB(1e6), "0.954 MiB");
  EXPECT_EQ(InGiB(2000), "1.95 KiB");
  EXPECT_EQ(InGiB(28), "28 B");
}

// A directory with fake /proc and /sys trees.
class MemoryLimitTest : public testing::Test {
 protected:
  MemoryLimitTest() : root_(testing::TempDir() + "cairn_memory_XXXXXX") {
    EXPECT_NE(mkdtemp(root_.data()), nullptr);
  }
  ~MemoryLimitTest() override { std::filesystem::remove_all(root_); }
  void Put(const std::string& path, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(root_ + path).parent_path());
    std::ofstream(root_ + path) << text;
  }
  std::string root_;
};

TEST_F(MemoryLimitTest, WithoutControlGroupsThereIsNoLimit) {
  EXPECT_EQ(MemoryLimitOfCgroups(root_), std::nullopt);
}

TEST_F(MemoryLimitTest, Version2TakesTheTightestLimitOfAllAncestors) {
  Put("/proc/self/cgroup", "0::/pods/mine\n");
  Put("/sys/fs/cgroup/pods/mine/memory.max", "max\n");
  EXPECT_EQ(MemoryLimitOfCgroups(root_), std::nullopt);
  Put("/sys/fs/cgroup/pods/memory.max", "4096\n");
  EXPECT_EQ(MemoryLimitOfCgroups(root_), 4096);
  Put("/sys/fs/cgroup/pods/mine/memory.max", "8192\n");
  EXPECT_EQ(MemoryLimitOfCgroups(root_), 4096);
}

TEST_F(MemoryLimitTest, Version1ReadsTheMemoryControllersGroup) {
  Put("/proc/self/cgroup", "12:memory:/docker/abc\n4:cpu,cpuacct:/other\n");
  Put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  Put("/sys/fs/cgroup/memory/docker/abc/memory.limit_in_bytes", "536870912\n");
  EXPECT_EQ(MemoryLimitOfCgroups(root_), 536870912);
}

TEST_F(MemoryLimitTest, InAContainerWithAHostPathTheMountsLimitCounts) {
  Put("/proc/self/cgroup", "12:memory:/docker/abc\n");
  Put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "1048576\n");
  EXPECT_EQ(MemoryLimitOfCgroups(root_), 1048576);
}

TEST(UsableMemory, IsPlausible) {
  EXPECT_GT(UsableMemory(), int64_t{1} << 20);
}

}  // namespace
}  // namespace cairn
