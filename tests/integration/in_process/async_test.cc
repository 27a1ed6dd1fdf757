// The promises of asynchronous training, each tested on a whole cluster.
#include <algorithm>
#include <atomic>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/gate.h"
#include "tests/support/in_process_cluster.h"
#include "tests/support/toy_job.h"

namespace cairn::test {
namespace {

using testing::Each;
using testing::ElementsAre;

ToyJob AsyncJob(int workers, std::vector<ToyVariable> variables) {
  ToyJob toy(workers, std::move(variables));
  toy.job.set_mode(v1::MODE_ASYNC);
  return toy;
}

TEST(AsyncCluster, APushIsAppliedWithoutWaitingForOthers) {
  InProcessCluster cluster({.servers = 2});
  ToyWorkers workers = StartAll(cluster, AsyncJob(2, {{"a", {1}, {0}}, {"b", {1}, {0}}}));
  for (int step = 1; step <= 3; ++step) {
    EXPECT_EQ(workers[0]->Push(std::vector<float>{1, 2})->outcome, v1::OUTCOME_ACCEPTED);
    EXPECT_EQ(workers[0]->client().steps().version(), step);
  }
  EXPECT_THAT(workers[0]->Values(), ElementsAre(-3, -6));
}

TEST(AsyncCluster, EveryPushCountsExactlyOnce) {
  constexpr int kWorkers = 4, kSteps = 50;
  InProcessCluster cluster({.servers = 2, .longest_delay = std::chrono::microseconds(200)});
  ToyWorkers workers = StartAll(cluster, AsyncJob(kWorkers, {{"a", {1}, {0}}, {"b", {1}, {0}}}));
  InParallel(kWorkers, [&](int w) {
    const std::vector<float> gradient(2, -static_cast<float>(1 << (6 * w)));
    for (int step = 0; step < kSteps; ++step) {
      const auto result = workers[static_cast<size_t>(w)]->Push(gradient);
      ASSERT_TRUE(result.ok()) << result.status();
      ASSERT_EQ(result->outcome, v1::OUTCOME_ACCEPTED);
    }
  });
  ASSERT_EQ(workers[0]->client().steps().Pull(), absl::OkStatus());
  EXPECT_EQ(workers[0]->client().steps().version(), kWorkers * kSteps);
  EXPECT_THAT(workers[0]->Values(), Each(kSteps * (1 + 64 + 4096 + 262144)));
}

TEST(AsyncCluster, StalenessIsRecordedUpToItsLimitAndRefusedBeyond) {
  InProcessCluster cluster;
  ToyJob toy = AsyncJob(2, {{"a", {1}, {0}}});
  toy.job.set_max_staleness(1);
  ToyWorkers workers = StartAll(cluster, toy);
  const std::vector<float> one = {1};
  ASSERT_TRUE(workers[0]->Push(one).ok());

  const auto behind_by_one = workers[1]->Push(one);
  EXPECT_EQ(behind_by_one->outcome, v1::OUTCOME_ACCEPTED);
  EXPECT_EQ(behind_by_one->staleness, 1);

  ASSERT_TRUE(workers[1]->Push(one).ok());  // worker 0 has version 1, the server version 3
  const auto behind_by_two = workers[0]->Push(one);
  EXPECT_EQ(behind_by_two->outcome, v1::OUTCOME_STALE);
  EXPECT_EQ(behind_by_two->staleness, 2);
  EXPECT_THAT(workers[0]->Values(), ElementsAre(-3)) << "it continues from the current version";
  EXPECT_EQ(workers[0]->Push(one)->outcome, v1::OUTCOME_ACCEPTED);

  const v1::Counters counters = workers[0]->client().control().ServerCounters().value();
  EXPECT_EQ(counters.accepted(), 4);
  EXPECT_EQ(counters.stale(), 1);
  EXPECT_EQ(counters.staleness_max(), 1);
}

// Each server counts its own versions. They differ while a push has reached only one of them. Another
// worker's gradient must not seem to come from the future then.
TEST(AsyncCluster, ServersMayBeAtDifferentVersions) {
  InProcessCluster cluster({.servers = 2});
  ToyWorkers workers = StartAll(cluster, AsyncJob(2, {{"a", {1}, {0}}, {"b", {1}, {0}}}));
  Gate held, go;
  // The first push opens the stream to ps/1, so the tap sees it.
  cluster.link("worker/0", 1).TapClientFrames([&](const v1::ClientHeader& header) {
    if (header.has_end()) {
      held.Open();
      EXPECT_TRUE(go.Wait());
    }
    return Fate::kDeliver;
  });
  Thread slow("slow",
              [&] { EXPECT_EQ(workers[0]->Push(std::vector<float>{1, 1})->outcome, v1::OUTCOME_ACCEPTED); });
  ASSERT_TRUE(held.Wait());
  do {  // until ps/0 has applied its part of the push
    ASSERT_EQ(workers[1]->client().steps().Pull(), absl::OkStatus());
  } while (workers[1]->client().steps().version() < 1);
  EXPECT_THAT(workers[1]->Values(), ElementsAre(-1, 0));
  const auto result = workers[1]->Push(std::vector<float>{2, 2});
  EXPECT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->staleness, 0);
  go.Open();
  slow.Join();
  ASSERT_EQ(workers[1]->client().steps().Pull(), absl::OkStatus());
  EXPECT_THAT(workers[1]->Values(), ElementsAre(-3, -3));
}

// The variable is larger than a chunk, so its values travel in several frames.
TEST(AsyncCluster, APullSeesOnlyWholeUpdatesOfAVariable) {
  constexpr int64_t kElements = net::kMaxPayloadFloats + 1000;
  InProcessCluster cluster;
  ToyWorkers workers = StartAll(
      cluster, AsyncJob(3, {{"a", {kElements}, std::vector<float>(static_cast<size_t>(kElements), 0)}}));
  std::atomic<int> busy{2};
  InParallel(3, [&](int w) {
    ToyWorker& worker = *workers[static_cast<size_t>(w)];
    if (w < 2) {
      const std::vector<float> gradient(static_cast<size_t>(kElements), -1);
      for (int step = 0; step < 10; ++step) EXPECT_TRUE(worker.Push(gradient).ok());
      --busy;
      return;
    }
    while (busy > 0) {
      ASSERT_EQ(worker.client().steps().Pull(), absl::OkStatus());
      const absl::Span<const float> values = worker.client().steps().parameters();
      const auto version = static_cast<float>(worker.client().steps().version());
      ASSERT_TRUE(std::all_of(values.begin(), values.end(), [=](float value) { return value == version; }));
    }
  });
}

}  // namespace
}  // namespace cairn::test
