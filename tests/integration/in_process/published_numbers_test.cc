// Numbers that other parameter servers assert in their own tests, reproduced on a whole cluster.
#include <cmath>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/in_process_cluster.h"
#include "tests/support/toy_job.h"

namespace cairn::test {
namespace {

using testing::AnyOf;
using testing::ElementsAre;
using testing::FloatNear;
using testing::Pointwise;

void SetRate(ToyJob& toy, double rate) {
  (*toy.job.mutable_optimizer()->mutable_hyperparameters())["learning_rate"] = rate;
}

// tensorflow/python/training/sync_replicas_optimizer_test.py, 2 workers.
TEST(PublishedClusterNumbers, TensorFlowSyncReplicas) {
  InProcessCluster cluster({.servers = 2});
  ToyJob toy(2, {{"v0", {}, {0}}, {"v1", {}, {1}}});
  SetRate(toy, 2);
  ToyWorkers workers = StartAll(cluster, toy);
  const std::vector<std::vector<float>> gradients = {{0.1f, 0.9f}, {0.3f, 1.1f}};
  PushAll(workers, gradients);
  EXPECT_THAT(workers[0]->Values(), ElementsAre(FloatNear(-0.4f, 1e-6f), FloatNear(-1, 1e-6f)));
  PushAll(workers, gradients);
  EXPECT_THAT(workers[1]->Values(), ElementsAre(FloatNear(-0.8f, 1e-6f), FloatNear(-3, 1e-6f)));
}

// tests/nightly/dist_sync_kvstore.py. Its server adds rate 2 times the sum, and Cairn subtracts the rate
// times the mean. Both are exactly equal with rate 2n and negated gradients.
TEST(PublishedClusterNumbers, MxnetDistSync) {
  for (int n : {2, 3}) {
    InProcessCluster cluster({.servers = 2});
    ToyJob toy(n, {{"w", {2, 2}, {1, 1, 1, 1}}});
    toy.split_bytes = 8;
    SetRate(toy, 2.0 * n);
    ToyWorkers workers = StartAll(cluster, toy);
    for (int round = 0; round < 3; ++round) {
      std::vector<std::vector<float>> gradients;
      for (int rank = 0; rank < n; ++rank) gradients.emplace_back(4, -static_cast<float>(rank + 1));
      PushAll(workers, gradients);
      EXPECT_THAT(workers[0]->Values(), testing::Each(1 + n * (n + 1) * (round + 1))) << n << " workers";
    }
  }
}

// elasticdl/python/tests/servicer_test.py: two gradients make an update, and another one of version 0 is then
// stale.
TEST(PublishedClusterNumbers, ElasticDlSync) {
  InProcessCluster cluster({.servers = 2});
  ToyJob toy(3, {{"p1", {3}, {10, 20, 30}}, {"p2", {3}, {20, 40, 60}}});
  toy.job.set_replicas_to_aggregate(2);
  SetRate(toy, 0.1);
  ToyWorkers workers = StartAll(cluster, toy);
  const std::vector<std::vector<float>> gradients = {{1, 2, 3, 2, 4, 6}, {0, 0, 7, 9, 9, 6}};
  InParallel(2,
             [&](int w) { (void)workers[static_cast<size_t>(w)]->Push(gradients[static_cast<size_t>(w)]); });
  const std::vector<float> expected = {9.95f, 19.9f, 29.5f, 19.45f, 39.35f, 59.4f};
  EXPECT_THAT(workers[0]->Values(), Pointwise(FloatNear(4e-6f), expected));  // 1 ulp at 60
  EXPECT_EQ(workers[0]->client().steps().version(), 1);

  const auto refused = workers[2]->Push(std::vector<float>(6, 1));  // from version 0
  EXPECT_EQ(refused->outcome, v1::OUTCOME_STALE);
  EXPECT_EQ(workers[2]->client().steps().version(), 1);
  EXPECT_THAT(workers[2]->Values(), Pointwise(FloatNear(4e-6f), expected));
}

TEST(PublishedClusterNumbers, ElasticDlAsyncAppliesEachPushAtOnce) {
  InProcessCluster cluster({.servers = 2});
  ToyJob toy(2, {{"p1", {3}, {10, 20, 30}}});
  toy.split_bytes = 8;
  toy.job.set_mode(v1::MODE_ASYNC);
  SetRate(toy, 0.1);
  ToyWorkers workers = StartAll(cluster, toy);
  EXPECT_EQ(workers[0]->Push(std::vector<float>{1, 2, 3})->outcome, v1::OUTCOME_ACCEPTED);
  EXPECT_THAT(workers[0]->Values(), Pointwise(FloatNear(2e-6f), std::vector<float>{9.9f, 19.8f, 29.7f}));
  EXPECT_EQ(workers[1]->Push(std::vector<float>{0, 0, 7})->outcome, v1::OUTCOME_ACCEPTED);  // from version 0
  EXPECT_THAT(workers[1]->Values(), Pointwise(FloatNear(2e-6f), std::vector<float>{9.9f, 19.8f, 29.0f}));
  EXPECT_EQ(workers[1]->client().steps().version(), 2);
}

// Adam at rate 0.1 from p = 1 with gradients 0.1 and 0.3.
ToyJob AdamJob() {
  ToyJob toy(2, {{"p", {}, {1}}});
  toy.job.mutable_optimizer()->set_name("Adam");
  SetRate(toy, 0.1);
  (*toy.job.mutable_optimizer()->mutable_hyperparameters())["epsilon"] = 1e-8;
  return toy;
}

TEST(PublishedClusterNumbers, AdamTakesOneStepOnTheMeanOfASyncRound) {
  InProcessCluster cluster;
  ToyWorkers workers = StartAll(cluster, AdamJob());
  PushAll(workers, {{0.1f}, {0.3f}});
  EXPECT_NEAR(workers[0]->Values()[0], 0.9000001581, 1e-7);
}

TEST(PublishedClusterNumbers, AsyncAdamIsOneOfTheSerialOrdersOfItsPushes) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    InProcessCluster cluster({.longest_delay = std::chrono::microseconds(500), .seed = seed});
    ToyJob toy = AdamJob();
    toy.job.set_mode(v1::MODE_ASYNC);
    ToyWorkers workers = StartAll(cluster, toy);
    PushAll(workers, {{0.1f}, {0.3f}});
    ASSERT_EQ(workers[0]->client().steps().Pull(), absl::OkStatus());
    EXPECT_EQ(workers[0]->client().steps().version(), 2);
    EXPECT_THAT(workers[0]->Values()[0],
                AnyOf(FloatNear(0.8082222961f, 1e-6f), FloatNear(0.8128937975f, 1e-6f)));
  }
}

}  // namespace
}  // namespace cairn::test
