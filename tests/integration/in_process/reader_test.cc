// Readers during training: they always see all variables at one version.
#include <algorithm>
#include <atomic>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/in_process_cluster.h"
#include "tests/support/toy_job.h"

namespace cairn::test {
namespace {

using testing::Each;

// Every update adds one to every element, so a value is a version.
TEST(Reader, SeesAllVariablesOnAllServersAtOneVersion) {
  constexpr int kReads = 500;
  InProcessCluster cluster({.servers = 3, .longest_delay = std::chrono::microseconds(100)});
  ToyJob toy(2, {{"a", {2}, {0, 0}}, {"b", {2}, {0, 0}}, {"c", {2}, {0, 0}}, {"d", {1}, {0}}});
  ToyWorkers workers = StartAll(cluster, toy);
  ToyWorker reader(cluster, toy, /*worker=*/7);  // no member of the job
  ASSERT_EQ(reader.client().WaitReady(JobFor(cluster, toy)), absl::OkStatus());

  std::atomic<bool> stop{false};
  std::vector<int64_t> versions;
  InParallel(3, [&](int w) {
    if (w == 2) {
      for (int read = 0; read < kReads; ++read) {
        ASSERT_EQ(reader.client().steps().Pull(), absl::OkStatus());
        versions.push_back(reader.client().steps().version());
        EXPECT_THAT(reader.Values(), Each(static_cast<float>(versions.back())));
      }
      stop = true;
      return;
    }
    // The first worker that sees the end leaves, and the other's round then closes without it.
    ToyWorker& worker = *workers[static_cast<size_t>(w)];
    const std::vector<float> gradient(7, -1);
    while (!stop) ASSERT_TRUE(worker.Push(gradient).ok());
    worker.client().Leave(v1::LEAVE_REASON_FINISHED, "");
  });
  EXPECT_TRUE(std::is_sorted(versions.begin(), versions.end())) << "no read goes back";
  EXPECT_GT(versions.back(), versions.front()) << "rounds went on meanwhile";
}

TEST(Reader, DoesNotReceiveUnchangedValuesAgain) {
  InProcessCluster cluster({.servers = 2});
  const ToyJob toy(1, {{"a", {2}, {0, 0}}, {"b", {2}, {0, 0}}});
  ToyWorkers workers = StartAll(cluster, toy);
  ToyWorker& worker = *workers[0];
  ASSERT_TRUE(worker.Push(std::vector<float>(4, -3)).ok());  // the two buffers differ now
  ASSERT_EQ(worker.client().steps().Pull(), absl::OkStatus());
  const auto sent = [&] {
    return cluster.server(0)->metrics().sent_bytes.value() + cluster.server(1)->metrics().sent_bytes.value();
  };
  const std::vector<float> values = worker.Values();
  EXPECT_THAT(values, Each(3));
  const int64_t before = sent();
  for (int pull = 0; pull < 3; ++pull) {
    ASSERT_EQ(worker.client().steps().Pull(), absl::OkStatus());
    EXPECT_EQ(worker.Values(), values);
  }
  EXPECT_EQ(sent(), before);
  // The values are replaced without a new version.
  auto others = values;
  for (float& value : others) value += 1;
  ASSERT_EQ(worker.client().control().Write(others, {}), absl::OkStatus());
  EXPECT_EQ(worker.Values(), others);
  const std::vector<float> gradient(values.size(), 1);
  ASSERT_TRUE(worker.Push(gradient).ok());
  const std::vector<float> after = worker.Values();
  ASSERT_EQ(worker.client().steps().Pull(), absl::OkStatus());
  EXPECT_EQ(worker.Values(), after);
}

}  // namespace
}  // namespace cairn::test
