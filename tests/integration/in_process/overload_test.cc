// A server without free memory: workers are informed and wait, and nothing is lost.
#include <memory>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/gate.h"
#include "tests/support/in_process_cluster.h"
#include "tests/support/toy_job.h"

namespace cairn::test {
namespace {

using testing::ElementsAre;

// The job has one worker, one element of 4 bytes and no slots, so it needs 2 + 2 + 1 elements.
constexpr int64_t kNeeds = 4 * 5;

TEST(OverloadedCluster, APushRefusedForMemoryIsSentAgainAndCountsOnce) {
  InProcessCluster cluster({.memory_limit = kNeeds});
  ToyJob toy(1, {{"a", {1}, {0}}});
  toy.job.set_mode(v1::MODE_ASYNC);
  ToyWorkers workers = StartAll(cluster, toy);
  Gate refused;
  cluster.link("worker/0", 0).TapServerFrames([&](const v1::ServerHeader& header) {
    if (header.done().code() == static_cast<int>(absl::StatusCode::kResourceExhausted)) refused.Open();
    return Fate::kDeliver;
  });

  ps::BufferPool& pool = cluster.server(0)->JobToFollow("toy", 0).value()->shard().store().pool();
  std::vector<std::shared_ptr<AlignedBuffer>> taken;
  for (int buffer = 0; buffer < 4; ++buffer) taken.push_back(pool.TryAcquire());
  ASSERT_NE(taken.back(), nullptr);
  ASSERT_FALSE(pool.HasRoom()) << "the values are the fifth";

  absl::StatusOr<client::StepResult> result = absl::UnknownError("not pushed");
  InParallel(2, [&](int thread) {
    if (thread == 0) {
      result = workers[0]->Push(std::vector<float>{1});
    } else {
      EXPECT_TRUE(refused.Wait());
      taken.clear();
    }
  });
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->outcome, v1::OUTCOME_ACCEPTED);
  EXPECT_FALSE(result->duplicate);
  EXPECT_EQ(workers[0]->client().version(), 1);
  EXPECT_THAT(workers[0]->Values(), ElementsAre(-1));
}

TEST(OverloadedCluster, AReadRefusedForMemoryIsRepeated) {
  InProcessCluster cluster({.memory_limit = kNeeds});
  ToyWorkers workers = StartAll(cluster, ToyJob(1, {{"a", {1}, {7}}}));
  Gate refused;
  cluster.link("worker/0", 0).TapServerFrames([&](const v1::ServerHeader& header) {
    if (header.done().code() == static_cast<int>(absl::StatusCode::kResourceExhausted)) refused.Open();
    return Fate::kDeliver;
  });
  ps::BufferPool& pool = cluster.server(0)->JobToFollow("toy", 0).value()->shard().store().pool();
  std::vector<std::shared_ptr<AlignedBuffer>> taken;
  for (int buffer = 0; buffer < 4; ++buffer) taken.push_back(pool.TryAcquire());

  absl::Status pulled = absl::UnknownError("not pulled");
  InParallel(2, [&](int thread) {
    if (thread == 0) {
      pulled = workers[0]->client().Pull();
    } else {
      EXPECT_TRUE(refused.Wait());
      taken.clear();
    }
  });
  EXPECT_EQ(pulled, absl::OkStatus());
  EXPECT_THAT(workers[0]->Values(), ElementsAre(7));
}

TEST(OverloadedCluster, AJobThatNeedsTooMuchMemoryIsRefused) {
  InProcessCluster cluster({.memory_limit = kNeeds - 1});
  const ToyJob toy(1, {{"a", {1}, {0}}});
  ToyWorker chief(cluster, toy, 0);
  client::FirstValues first(toy.initial);
  const absl::Status refused = chief.client().Initialise(JobFor(cluster, toy), first);
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted) << refused;
}

}  // namespace
}  // namespace cairn::test
