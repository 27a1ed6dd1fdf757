// A server without free memory: workers are informed and wait, and nothing is lost.
#include <memory>
#include <vector>

#include "absl/functional/function_ref.h"
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

// Takes all memory of the server, runs `call` of worker/0, and gives the memory back when the server has
// refused it.
void RunWithoutMemory(InProcessCluster& cluster, absl::FunctionRef<void()> call) {
  const auto refused = std::make_shared<Gate>();
  cluster.link("worker/0", 0).TapServerFrames([refused](const v1::ServerHeader& header) {
    if (header.done().code() == static_cast<int>(absl::StatusCode::kResourceExhausted)) refused->Open();
    return Fate::kDeliver;
  });
  optim::BufferPool& pool = cluster.server(0)->JobToFollow("toy", 0).value()->shard().store().pool();
  std::vector<std::shared_ptr<AlignedBuffer>> taken;
  for (int buffer = 0; buffer < 4; ++buffer) taken.push_back(pool.TryAcquire());
  ASSERT_NE(taken.back(), nullptr);
  ASSERT_FALSE(pool.HasRoom()) << "the values are the fifth";
  InParallel(2, [&](int thread) {
    if (thread == 0) {
      call();
    } else {
      EXPECT_TRUE(refused->Wait());
      taken.clear();
    }
  });
}

TEST(OverloadedCluster, APushRefusedForMemoryIsSentAgainAndCountsOnce) {
  InProcessCluster cluster({.memory_limit = kNeeds});
  ToyJob toy(1, {{"a", {1}, {0}}});
  toy.job.set_mode(v1::MODE_ASYNC);
  ToyWorkers workers = StartAll(cluster, toy);
  absl::StatusOr<client::StepResult> result = absl::UnknownError("not pushed");
  RunWithoutMemory(cluster, [&] { result = workers[0]->Push(std::vector<float>{1}); });
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->outcome, v1::OUTCOME_ACCEPTED);
  EXPECT_FALSE(result->duplicate);
  EXPECT_EQ(workers[0]->client().steps().version(), 1);
  EXPECT_THAT(workers[0]->Values(), ElementsAre(-1));
}

TEST(OverloadedCluster, AReadRefusedForMemoryIsRepeated) {
  InProcessCluster cluster({.memory_limit = kNeeds});
  ToyWorkers workers = StartAll(cluster, ToyJob(1, {{"a", {1}, {7}}}));
  absl::Status pulled = absl::UnknownError("not pulled");
  RunWithoutMemory(cluster, [&] { pulled = workers[0]->client().steps().Pull(); });
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
