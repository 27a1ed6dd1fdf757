#include "common/net/cluster/cluster_flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <CLI/CLI.hpp>

#include "common/flags/flags.h"

namespace cairn::net {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(ClusterFlags, HostsAreCommaLists) {
  CLI::App app("A program", "cairn-test");
  ClusterFlags flags;
  AddClusterFlags(app, flags);
  const char* const argv[] = {"cairn-test",         "--job_name",     "worker",     "--task-index=1",
                              "--ps_hosts=a:1,b:2", "--worker-hosts", "c:3,[::1]:4"};
  ASSERT_EQ(ParseCommandLine(app, std::size(argv), argv), std::nullopt);
  EXPECT_EQ(flags.job_name, "worker");
  EXPECT_EQ(flags.task_index, 1);
  EXPECT_THAT(flags.ps_hosts, ElementsAre("a:1", "b:2"));
  EXPECT_THAT(flags.worker_hosts, ElementsAre("c:3", "[::1]:4"));
  EXPECT_THAT(flags.chief_hosts, IsEmpty());
}

TEST(ClusterFlags, FlagsNotGivenAreEmpty) {
  CLI::App app("A program", "cairn-test");
  ClusterFlags flags;
  AddClusterFlags(app, flags);
  const char* const argv[] = {"cairn-test"};
  ASSERT_EQ(ParseCommandLine(app, std::size(argv), argv), std::nullopt);
  EXPECT_EQ(flags.task_index, std::nullopt);
  EXPECT_EQ(flags.cluster_file, "");
}

TEST(ClusterFlags, ANegativeIndexIsRefusedNamingTheFlag) {
  CLI::App app("A program", "cairn-test");
  ClusterFlags flags;
  AddClusterFlags(app, flags);
  const char* const argv[] = {"cairn-test", "--task_index", "-1"};
  testing::internal::CaptureStderr();
  EXPECT_EQ(ParseCommandLine(app, std::size(argv), argv), ExitCode::kUsage);
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "cairn-test: --task_index: '-1' is not a whole number of at least 0\n");
}

}  // namespace
}  // namespace cairn::net
