#include "client/transport/connection.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/in_process_cluster.h"

namespace cairn::client {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

ConnectionOptions Within(std::chrono::milliseconds limit) {
  return {.task = "worker/0", .cluster_hash = 0, .connect_timeout = limit, .say = nullptr, .stop = nullptr};
}

TEST(Connection, UnreachableServersAreNamedWithTheReason) {
  test::InProcessCluster cluster({.servers = 3});
  cluster.Kill(1);
  const auto connection = Connection::Open(cluster.Stubs("worker/0"), Within(std::chrono::milliseconds(100)));
  EXPECT_EQ(connection.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(connection.status().message()),
              AllOf(HasSubstr("ps/1 at host1:2222: connection refused"), Not(HasSubstr("ps/0")),
                    Not(HasSubstr("ps/2"))));
}

TEST(Connection, WaitsForAServerThatStartsLate) {
  test::InProcessCluster cluster({.servers = 2});
  test::Link& late = cluster.link("worker/0", 1);
  late.SetReachable(false);
  Thread starts("starts", [&] {
    std::this_thread::sleep_for(
        std::chrono::milliseconds(50));  // the delay under test, not a wait for an event
    late.SetReachable(true);
  });
  EXPECT_TRUE(Connection::Open(cluster.Stubs("worker/0"), Within(std::chrono::seconds(20))).ok());
}

TEST(Connection, StopEndsTheWait) {
  test::InProcessCluster cluster;
  cluster.Kill(0);
  ConnectionOptions options = Within(std::chrono::seconds(300));
  options.stop = [] { return true; };
  EXPECT_EQ(Connection::Open(cluster.Stubs("worker/0"), options).status().code(),
            absl::StatusCode::kCancelled);
}

TEST(Connection, ServersInTheWrongOrderAreDetected) {
  test::InProcessCluster cluster({.servers = 2});
  auto stubs = cluster.Stubs("worker/0");
  std::swap(stubs[0], stubs[1]);
  const auto connection = Connection::Open(std::move(stubs), Within(std::chrono::seconds(20)));
  EXPECT_EQ(connection.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(connection.status().message()),
              HasSubstr("this is ps/1, but worker/0 expects ps/0"));
}

TEST(Connection, ARestartedServerIsDetected) {
  test::InProcessCluster cluster;
  const auto connection =
      Connection::Open(cluster.Stubs("worker/0"), Within(std::chrono::seconds(20))).value();
  EXPECT_TRUE(connection->Describe(0).ok());
  cluster.Restart(0);
  EXPECT_EQ(connection->Describe(0).status().code(), absl::StatusCode::kAborted);
}

TEST(Connection, AWaitThatTimesOutReportsWhatIsMissing) {
  test::InProcessCluster cluster;
  const auto connection =
      Connection::Open(cluster.Stubs("worker/0"), Within(std::chrono::seconds(20))).value();
  const absl::Status status =
      connection
          ->WaitUntil({.condition = v1::CONDITION_READY, .timeout = std::chrono::milliseconds(10)},
                      [] { return absl::OkStatus(); })
          .status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("ps/0 at host0:2222: the chief has not declared the job"));
}

}  // namespace
}  // namespace cairn::client
