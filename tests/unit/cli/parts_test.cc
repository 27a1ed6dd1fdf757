// The launcher's small parts: ports, cores, lines, and the plan of a local cluster.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "cli/launcher/local_cluster.h"
#include "cli/launcher/output_lines.h"
#include "cli/launcher/ports.h"
#include "common/system/cores.h"

namespace cairn::cli {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

// Whether a socket can listen on the port of 127.0.0.1.
bool CanListen(int port, bool reuse_port) {
  const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
  const int one = 1;
  if (reuse_port) setsockopt(socket, SOL_SOCKET, SO_REUSEPORT, &one, sizeof one);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const bool listens =
      bind(socket, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0 && listen(socket, 1) == 0;
  close(socket);
  return listens;
}

TEST(ReservedPort, OnlySocketsWithReusePortCanListenOnIt) {
  const auto port = ReservedPort::Reserve();
  ASSERT_TRUE(port.ok()) << port.status();
  EXPECT_FALSE(CanListen(port->port(), /*reuse_port=*/false));
  EXPECT_TRUE(CanListen(port->port(), /*reuse_port=*/true));
}

TEST(ReservedPort, PortsAreDistinctAndFreeAfterwards) {
  int number = 0;
  {
    const auto one = ReservedPort::Reserve();
    const auto two = ReservedPort::Reserve();
    EXPECT_NE(one->port(), two->port());
    number = one->port();
  }
  EXPECT_TRUE(CanListen(number, /*reuse_port=*/false));
}

// A /proc and /sys of files.
class CpuQuotaTest : public testing::Test {
 protected:
  CpuQuotaTest() : root_(testing::TempDir() + "cairn_quota_XXXXXX") {
    EXPECT_NE(mkdtemp(root_.data()), nullptr);
  }
  ~CpuQuotaTest() override { std::filesystem::remove_all(root_); }
  void Put(const std::string& path, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(root_ + path).parent_path());
    std::ofstream(root_ + path) << text;
  }
  std::string root_;
};

TEST_F(CpuQuotaTest, WithoutControlGroupsThereIsNoLimit) {
  EXPECT_EQ(CpuQuota(root_), std::nullopt);
}

TEST_F(CpuQuotaTest, Version2UsesTheSmallestLimitOfAllAncestors) {
  Put("/proc/self/cgroup", "0::/pods/mine\n");
  Put("/sys/fs/cgroup/pods/mine/cpu.max", "max 100000\n");
  EXPECT_EQ(CpuQuota(root_), std::nullopt);
  Put("/sys/fs/cgroup/pods/cpu.max", "150000 100000\n");
  EXPECT_EQ(CpuQuota(root_), 1.5);
  Put("/sys/fs/cgroup/pods/mine/cpu.max", "50000 100000\n");
  EXPECT_EQ(CpuQuota(root_), 0.5);
}

TEST_F(CpuQuotaTest, Version1ReadsTheGroupOfTheCpuController) {
  Put("/proc/self/cgroup", "12:memory:/m\n4:cpu,cpuacct:/docker/abc\n");
  Put("/sys/fs/cgroup/cpu,cpuacct/docker/abc/cpu.cfs_quota_us", "-1\n");
  Put("/sys/fs/cgroup/cpu,cpuacct/docker/abc/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(CpuQuota(root_), std::nullopt);
  Put("/sys/fs/cgroup/cpu,cpuacct/docker/abc/cpu.cfs_quota_us", "200000\n");
  EXPECT_EQ(CpuQuota(root_), 2.0);
}

TEST_F(CpuQuotaTest, InAContainerTheMountPointIsUsedInsteadOfTheHostPath) {
  Put("/proc/self/cgroup", "4:cpu:/docker/abc\n");
  Put("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "300000\n");
  Put("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(CpuQuota(root_), 3.0);
}

TEST(UsableCores, IsAtLeastOne) {
  EXPECT_GE(UsableCores(), 1);
}

TEST(OutputLines, LinesAreCompleteAndPrefixed) {
  OutputLines lines("ps/0", /*foreign=*/false);
  EXPECT_EQ(lines.Add("hel"), "");
  EXPECT_EQ(lines.Add("lo\nyou\nth"), "[ps/0] hello\n[ps/0] you\n");
  EXPECT_EQ(lines.Finish(), "[ps/0] th\n");
  EXPECT_EQ(lines.Finish(), "");
}

TEST(OutputLines, AnEndlessLineIsSplit) {
  OutputLines lines("x", /*foreign=*/false);
  EXPECT_EQ(lines.Add(std::string(OutputLines::kLongest + 1, 'a')),
            absl::StrCat("[x] ", std::string(OutputLines::kLongest, 'a'), "\n"));
  EXPECT_EQ(lines.Finish(), "[x] a\n");
}

LocalClusterArgs OneServerTwoWorkers() {
  return {.program_directory = "/opt/bin",
          .server_ports = {1000},
          .worker_ports = {2000, 2001},
          .model = "m.json",
          .train_flags = {"--epochs=2"},
          .summary = "out.json",
          .server_memory_limit = "2GiB",
          .tls_flags = {"--tls_ca=ca.pem"},
          .log_level = "warning",
          .threads = 3,
          .environment = {"HOME=/root"}};
}

TEST(LocalCluster, EveryTaskHasItsJobNameAndIndex) {
  const auto tasks = PlanLocalCluster(OneServerTwoWorkers());
  ASSERT_EQ(tasks.size(), 3u);
  EXPECT_THAT(
      tasks[0].child.command,
      ElementsAre("/opt/bin/cairn-ps", "--job_name=ps", "--task_index=0", "--ps_hosts=127.0.0.1:1000",
                  "--worker_hosts=127.0.0.1:2000,127.0.0.1:2001", "--log_level=warning", "--tls_ca=ca.pem",
                  "--listen=127.0.0.1:1000", "--reuse_port", "--memory_limit=2GiB"));
  EXPECT_THAT(
      tasks[2].child.command,
      ElementsAre("/opt/bin/cairn-worker", "--job_name=worker", "--task_index=1", "--ps_hosts=127.0.0.1:1000",
                  "--worker_hosts=127.0.0.1:2000,127.0.0.1:2001", "--log_level=warning", "--tls_ca=ca.pem",
                  "--model=m.json", "--epochs=2", "--threads=3"));
  EXPECT_EQ(tasks[1].child.name, "worker/0");
}

TEST(LocalCluster, EachTaskHasItsOwnMetricsPort) {
  LocalClusterArgs args = OneServerTwoWorkers();
  args.metrics_host = "127.0.0.1";
  args.metrics_port = 9000;
  const auto tasks = PlanLocalCluster(args);
  for (size_t i = 0; i < tasks.size(); ++i) {
    EXPECT_THAT(tasks[i].child.command, Contains(absl::StrCat("--metrics_port=", 9000 + i)));
    EXPECT_THAT(tasks[i].child.command, Contains("--metrics_host=127.0.0.1"));
  }
}

TEST(OutputLines, LogLinesAreNotPrefixed) {
  OutputLines lines("ps/0", /*foreign=*/false);
  EXPECT_EQ(lines.Add("W1126 01:23:54.326 ps/0] text\n"), "W1126 01:23:54.326 ps/0] text\n");
  EXPECT_EQ(lines.Add("W1126 01:23:54.326 ps/1] text\n"), "[ps/0] W1126 01:23:54.326 ps/1] text\n");
  EXPECT_EQ(lines.Add("WARNING: text\n"), "[ps/0] WARNING: text\n");
}

TEST(OutputLines, JsonObjectsAreNotPrefixed) {
  OutputLines lines("ps/0", /*foreign=*/false);
  EXPECT_EQ(lines.Add("{\"task\":\"ps/0\"}\ntext\n"), "{\"task\":\"ps/0\"}\n[ps/0] text\n");
}

TEST(OutputLines, EveryLineOfAForeignProgramIsPrefixed) {
  OutputLines lines("worker/0", /*foreign=*/true);
  EXPECT_EQ(lines.Add("{\"a\": 1}\nW1126 01:23:54.326 worker/0] text\n"),
            "[worker/0] {\"a\": 1}\n[worker/0] W1126 01:23:54.326 worker/0] text\n");
}

TEST(LocalCluster, OnlyTheChiefWritesTheSummaryAndSharesStdout) {
  const auto tasks = PlanLocalCluster(OneServerTwoWorkers());
  EXPECT_THAT(tasks[1].child.command, Contains("--summary=out.json"));
  EXPECT_TRUE(tasks[1].child.shares_stdout);
  EXPECT_EQ(tasks[1].role, Supervisor::Role::kChief);
  EXPECT_THAT(tasks[2].child.command, Not(Contains(HasSubstr("--summary"))));
  EXPECT_FALSE(tasks[2].child.shares_stdout);
  EXPECT_FALSE(tasks[0].child.shares_stdout);
}

TEST(LocalCluster, IdleThreadsSleepUnlessTheEnvironmentSaysOtherwise) {
  LocalClusterArgs args = OneServerTwoWorkers();
  EXPECT_THAT(PlanLocalCluster(args)[1].child.environment,
              ElementsAre("HOME=/root", "OMP_WAIT_POLICY=passive"));
  args.environment = {"OMP_WAIT_POLICY=active"};
  EXPECT_THAT(PlanLocalCluster(args)[1].child.environment, ElementsAre("OMP_WAIT_POLICY=active"));
}

}  // namespace
}  // namespace cairn::cli
