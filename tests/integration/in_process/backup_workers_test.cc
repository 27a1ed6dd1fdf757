// Rounds that close without the slowest workers. Every gradient is a power of two, so the values show the
// contributors.
#include <bit>
#include <map>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/effort.h"
#include "tests/support/in_process_cluster.h"
#include "tests/support/toy_job.h"

namespace cairn::test {
namespace {

using testing::Each;
using testing::ElementsAre;

TEST(BackupWorkers, ALateGradientIsReportedAsStale) {
  InProcessCluster cluster({.servers = 2});
  ToyJob toy(3, {{"a", {1}, {0}}, {"b", {1}, {0}}});
  toy.job.set_replicas_to_aggregate(2);
  ToyWorkers workers = StartAll(cluster, toy);
  InParallel(2, [&](int w) {
    EXPECT_EQ(workers[static_cast<size_t>(w)]->Push(std::vector<float>{2, 4})->outcome, v1::OUTCOME_ACCEPTED);
  });

  const auto late = workers[2]->Push(std::vector<float>{100, 100});
  ASSERT_TRUE(late.ok()) << late.status();
  EXPECT_EQ(late->outcome, v1::OUTCOME_STALE);
  EXPECT_EQ(late->staleness, 1);
  EXPECT_EQ(workers[2]->client().steps().version(), 1) << "it continues from the current version";
  EXPECT_THAT(workers[2]->Values(), ElementsAre(-2, -4));
  const v1::Counters counters = workers[0]->client().control().ServerCounters().value();
  EXPECT_EQ(counters.accepted(), 2);
  EXPECT_EQ(counters.stale(), 1);
}

// Five workers, three contributors per round, three servers with a variable each, and random delays
// everywhere.
TEST(BackupWorkers, ARoundHasTheSameContributorsOnAllServers) {
  constexpr int64_t kRounds = Effort(1000, 150);
  constexpr int kWorkers = 5, kContributors = 3;
  InProcessCluster cluster({.servers = 3, .longest_delay = std::chrono::microseconds(400), .seed = 42});
  ToyJob toy(kWorkers, {{"a", {1}, {0}}, {"b", {1}, {0}}, {"c", {1}, {0}}});
  toy.job.set_replicas_to_aggregate(kContributors);
  toy.job.set_final_version(kRounds);
  ToyWorkers workers = StartAll(cluster, toy);

  struct Seen {
    int64_t version;
    std::vector<float> values;
    v1::Outcome outcome;
  };
  std::vector<std::vector<Seen>> seen(kWorkers);  // [worker]
  InParallel(kWorkers, [&](int w) {
    ToyWorker& worker = *workers[static_cast<size_t>(w)];
    // Three times 2^w, since the mean divides by three, so the update is exactly the sum of the powers.
    const std::vector<float> gradient(3, -static_cast<float>(kContributors * (1 << w)));
    while (!worker.client().steps().finished()) {
      const auto result = worker.Push(gradient);
      ASSERT_TRUE(result.ok()) << result.status();
      seen[static_cast<size_t>(w)].push_back(
          {worker.client().steps().version(), worker.Values(), result->outcome});
    }
  });

  std::map<int64_t, float> value_at = {{0, 0.0f}};  // by version
  for (const auto& by_worker : seen) {
    for (const Seen& step : by_worker) {
      ASSERT_THAT(step.values, Each(step.values[0])) << "version " << step.version;
      const auto [at, fresh] = value_at.emplace(step.version, step.values[0]);
      ASSERT_EQ(at->second, step.values[0]) << "version " << step.version;
    }
  }
  ASSERT_EQ(value_at.size(), static_cast<size_t>(kRounds) + 1);
  const auto contributors = [&](int64_t version) {
    return static_cast<uint32_t>(value_at[version] - value_at[version - 1]);
  };
  for (int64_t version = 1; version <= kRounds; ++version) {
    ASSERT_LT(contributors(version), uint32_t{1} << kWorkers) << "version " << version;
    ASSERT_EQ(std::popcount(contributors(version)), kContributors) << "version " << version;
  }
  int64_t accepted = 0, stale = 0;
  for (int w = 0; w < kWorkers; ++w) {
    for (const Seen& step : seen[static_cast<size_t>(w)]) {
      stale += step.outcome == v1::OUTCOME_STALE ? 1 : 0;
      if (step.outcome != v1::OUTCOME_ACCEPTED) continue;
      ++accepted;
      ASSERT_NE(contributors(step.version) & (1u << w), 0u) << "worker " << w << ", version " << step.version;
    }
  }
  EXPECT_EQ(accepted, kContributors * kRounds) << "exactly the contributors' pushes were accepted";
  const v1::Counters counters = workers[0]->client().control().ServerCounters().value();
  EXPECT_EQ(counters.accepted(), accepted);
  EXPECT_EQ(counters.stale(), stale);
  EXPECT_EQ(counters.duplicate(), 0);
}

}  // namespace
}  // namespace cairn::test
