#include "client/heartbeats.h"

#include <atomic>

#include "gtest/gtest.h"
#include "tests/support/gate.h"
#include "tests/support/in_process_cluster.h"

namespace cairn::client {
namespace {

TEST(Heartbeats, AreSentOftenEnoughForTheLeaseAndTheLimitOfAStep) {
  using std::chrono::milliseconds;
  const auto period = [](int64_t lease_ms, int64_t step_timeout_ms) {
    return Heartbeats::Member{.lease = milliseconds(lease_ms), .step_timeout = milliseconds(step_timeout_ms)}
        .period();
  };
  EXPECT_EQ(period(10000, 0), milliseconds(2500));
  EXPECT_EQ(period(10000, 600000), milliseconds(2500));
  EXPECT_EQ(period(60000, 2000), milliseconds(500));
  EXPECT_EQ(period(60000, 10), milliseconds(50));
}

TEST(Heartbeats, ASuspendedServerCostsNoLeaseOnTheOthers) {
  test::InProcessCluster cluster({.servers = 2});
  const auto connection =
      Connection::Open(cluster.Stubs("worker/0"), {.task = "worker/0",
                                                   .cluster_hash = 0,
                                                   .connect_timeout = std::chrono::seconds(20),
                                                   .say = nullptr,
                                                   .stop = nullptr})
          .value();
  test::Gate stands_still, beats;
  std::atomic<int> heard{0};
  cluster.link("worker/0", 0).TapCalls([&](const std::string&) { stands_still.Wait(); });
  cluster.link("worker/0", 1).TapCalls([&](const std::string& message) {
    if (message == "HeartbeatRequest" && ++heard == 3) beats.Open();
  });
  Heartbeats heartbeats(*connection, {.report = nullptr, .changed = [] {}});
  heartbeats.Start({.worker = 0, .incarnation = 1, .lease = std::chrono::milliseconds(40)});
  EXPECT_TRUE(beats.Wait());
  stands_still.Open();
  heartbeats.Stop();
}

}  // namespace
}  // namespace cairn::client
