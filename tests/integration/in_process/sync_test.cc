// The promises of synchronous training, each tested on a whole cluster.
#include <atomic>
#include <cstring>
#include <limits>
#include <thread>
#include <vector>

#include "common/core/random.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/in_process_cluster.h"
#include "tests/support/toy_job.h"

namespace cairn::test {
namespace {

using testing::Each;
using testing::ElementsAre;

TEST(SyncCluster, ARoundAppliesTheMeanOnceAndTheVersionRisesByOne) {
  InProcessCluster cluster({.servers = 2});
  ToyJob toy(2, {{"a", {2}, {10, 20}}, {"b", {1}, {30}}});
  ToyWorkers workers = StartAll(cluster, toy);
  EXPECT_THAT(workers[1]->Values(), ElementsAre(10, 20, 30));

  for (const auto& result : PushAll(workers, {{1, 2, 3}, {3, 4, 5}})) {
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(result->outcome, v1::OUTCOME_ACCEPTED);
  }
  for (auto& worker : workers) {
    EXPECT_EQ(worker->client().steps().version(), 1);
    EXPECT_THAT(worker->Values(), ElementsAre(8, 17, 26));
  }
}

TEST(SyncCluster, TheFirstRoundCounts) {
  InProcessCluster cluster;
  ToyJob toy(3, {{"a", {1}, {0}}});
  ToyWorkers workers = StartAll(cluster, toy);
  PushAll(workers, {{1}, {1}, {1}});
  const v1::Counters counters = workers[0]->client().control().ServerCounters().value();
  EXPECT_EQ(counters.accepted(), 3);
  EXPECT_EQ(counters.stale(), 0);
}

// The model of these tests is the quadratic (w - t)^2 / 2 with a target per example: its gradient is w - t,
// so a round that mixed versions would show.
std::vector<float> MeanGradient(const std::vector<float>& values, const std::vector<float>& targets) {
  std::vector<float> gradient(values.size(), 0.0f);
  for (float target : targets) {
    for (size_t i = 0; i < values.size(); ++i) gradient[i] += values[i] - target * static_cast<float>(i + 1);
  }
  for (float& element : gradient) element /= static_cast<float>(targets.size());
  return gradient;
}

// Values after six rounds in which `workers` workers share eight examples. Everything is an integer times a
// small power of two, so the arithmetic is exact.
std::vector<float> TrainOnEightExamples(int num_workers, int servers) {
  InProcessCluster cluster({.servers = servers});
  ToyJob toy(num_workers, {{"a", {3, 2}, {8, 16, 24, 32, 40, 48}}, {"b", {2}, {0, 64}}});
  toy.split_bytes = 8;
  (*toy.job.mutable_optimizer()->mutable_hyperparameters())["learning_rate"] = 0.5;
  ToyWorkers workers = StartAll(cluster, toy);
  const std::vector<float> targets = {1, -2, 3, 5, -8, 13, 4, 8};
  const size_t batch = targets.size() / workers.size();
  for (int round = 0; round < 6; ++round) {
    std::vector<std::vector<float>> gradients;
    for (size_t w = 0; w < workers.size(); ++w) {
      const auto first = targets.begin() + static_cast<std::ptrdiff_t>(w * batch);
      gradients.push_back(
          MeanGradient(workers[w]->Values(), {first, first + static_cast<std::ptrdiff_t>(batch)}));
    }
    PushAll(workers, gradients, std::vector<int64_t>(workers.size(), static_cast<int64_t>(batch)));
  }
  EXPECT_EQ(workers[0]->client().steps().version(), 6);
  return workers.back()->Values();
}

TEST(SyncCluster, KWorkersWithBatchBEqualOneWorkerWithBatchKB) {
  const std::vector<float> alone = TrainOnEightExamples(1, 1);
  EXPECT_EQ(TrainOnEightExamples(2, 1), alone);
  EXPECT_EQ(TrainOnEightExamples(4, 3), alone);
  EXPECT_EQ(TrainOnEightExamples(8, 2), alone);
}

// Values after eight rounds of Adam with gradients whose sum depends on its order.
std::vector<float> TrainOnNoise(const ClusterOptions& options) {
  InProcessCluster cluster(options);
  const auto noise = [](uint64_t stream, int64_t count) {
    Random random(7, stream);
    std::vector<float> values(static_cast<size_t>(count));
    for (float& value : values) value = random.NextNormal();
    return values;
  };
  ToyJob toy(4, {{"a", {7, 5}, noise(0, 35)}, {"b", {11}, noise(1, 11)}, {"c", {2, 3}, noise(2, 6)}});
  toy.split_bytes = 40;
  toy.job.mutable_optimizer()->set_name("Adam");
  ToyWorkers workers = StartAll(cluster, toy);
  for (uint64_t round = 0; round < 8; ++round) {
    std::vector<std::vector<float>> gradients;
    for (uint64_t w = 0; w < 4; ++w) gradients.push_back(noise(100 + 4 * round + w, 52));
    PushAll(workers, gradients, {1, 2, 3, 4});
  }
  return workers[0]->Values();
}

TEST(SyncCluster, ValuesAreTheSameBitsForAnyNumberOfServersAndAnyOrderOfArrival) {
  const std::vector<float> reference = TrainOnNoise({.servers = 1});
  const auto expect_same_bits = [&](const std::vector<float>& values) {
    ASSERT_EQ(values.size(), reference.size());
    EXPECT_EQ(std::memcmp(values.data(), reference.data(), values.size() * sizeof(float)), 0);
  };
  expect_same_bits(TrainOnNoise({.servers = 3}));
  for (uint64_t seed : {1, 2, 3}) {
    expect_same_bits(
        TrainOnNoise({.servers = 3, .longest_delay = std::chrono::microseconds(1500), .seed = seed}));
  }
}

TEST(SyncCluster, TheMeanIsWeightedByExamples) {
  InProcessCluster cluster;
  ToyJob toy(2, {{"a", {1}, {0}}});
  ToyWorkers workers = StartAll(cluster, toy);
  PushAll(workers, {{8}, {4}}, /*examples=*/{1, 3});
  EXPECT_THAT(workers[0]->Values(), ElementsAre(-5));
}

TEST(SyncCluster, AWorkerWithoutExamplesTakesPartInTheRound) {
  InProcessCluster cluster({.servers = 2});
  ToyJob toy(2, {{"a", {1}, {0}}, {"b", {1}, {0}}});
  ToyWorkers workers = StartAll(cluster, toy);
  PushAll(workers, {{8, 4}, {99, 99}}, /*examples=*/{2, 0});
  for (auto& worker : workers) {
    EXPECT_EQ(worker->client().steps().version(), 1);
    EXPECT_THAT(worker->Values(), ElementsAre(-8, -4));
  }
}

TEST(SyncCluster, ServersWithoutVariablesTakePart) {
  InProcessCluster cluster({.servers = 4});
  ToyJob toy(2, {{"only", {}, {5}}});
  ToyWorkers workers = StartAll(cluster, toy);
  PushAll(workers, {{1}, {3}});
  EXPECT_THAT(workers[1]->Values(), ElementsAre(3));
}

TEST(SyncCluster, NoUpdateIsMadeBeyondTheFinalVersion) {
  InProcessCluster cluster({.servers = 2});
  ToyJob toy(2, {{"a", {1}, {0}}, {"b", {1}, {0}}});
  toy.job.set_final_version(2);
  ToyWorkers workers = StartAll(cluster, toy);
  PushAll(workers, {{1, 1}, {1, 1}});
  EXPECT_FALSE(workers[0]->client().steps().finished());
  PushAll(workers, {{1, 1}, {1, 1}});
  EXPECT_TRUE(workers[0]->client().steps().finished());
  for (const auto& result : PushAll(workers, {{1, 1}, {1, 1}}))
    EXPECT_EQ(result->outcome, v1::OUTCOME_FINISHED);
  EXPECT_EQ(workers[1]->client().steps().version(), 2);
  EXPECT_THAT(workers[1]->Values(), Each(-2));
}

TEST(SyncCluster, AGradientThatIsNotFiniteEndsTheJobAndNamesTheVariable) {
  InProcessCluster cluster({.servers = 2});
  ToyJob toy(2, {{"kernel", {1}, {0}}, {"bias", {1}, {0}}});
  ToyWorkers workers = StartAll(cluster, toy);
  for (const auto& result : PushAll(workers, {{1, 1}, {1, std::numeric_limits<float>::quiet_NaN()}})) {
    EXPECT_EQ(result.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(result.status().message()), testing::HasSubstr("'bias'"));
  }
}

// Messages under way are lost each time, and both sides repeat what the other one may have missed.
TEST(SyncCluster, RoundsGoOnWhileFollowersLoseTheirLinkToTheSequencer) {
  InProcessCluster cluster({.servers = 3, .longest_delay = std::chrono::microseconds(300)});
  ToyJob toy(2, {{"a", {1}, {0}}, {"b", {1}, {0}}, {"c", {1}, {0}}});
  ToyWorkers workers = StartAll(cluster, toy);
  std::atomic<bool> stop{false};
  Thread breaker("breaker", [&] {
    while (!stop) {
      cluster.BreakFollower(1);
      cluster.BreakFollower(2);
      std::this_thread::sleep_for(std::chrono::milliseconds(3));
    }
  });
  constexpr int kRounds = 60;
  for (int round = 0; round < kRounds; ++round) {
    for (const auto& result : PushAll(workers, {{1, 1, 1}, {3, 3, 3}})) {
      ASSERT_TRUE(result.ok()) << result.status();
      ASSERT_EQ(result->outcome, v1::OUTCOME_ACCEPTED);
    }
  }
  stop = true;
  EXPECT_EQ(workers[0]->client().steps().version(), kRounds);
  EXPECT_THAT(workers[0]->Values(), Each(-2 * kRounds));
}

}  // namespace
}  // namespace cairn::test
