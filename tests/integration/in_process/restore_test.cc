// When servers have lost their variables, all servers restore a snapshot together, and the job continues from
// it.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "client/snapshot.h"
#include "common/system/thread.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/fake_clock.h"
#include "tests/support/in_process_cluster.h"
#include "tests/support/snapshot_memory.h"
#include "tests/support/toy_job.h"

namespace cairn::test {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr auto kLimit = std::chrono::seconds(10);
using Memory = SnapshotMemory;

// Momentum, so that the optimizer has something to remember.
ToyJob Job(int workers, v1::Mode mode = v1::MODE_SYNC) {
  ToyJob toy(workers, {{"a", {4}, {1, 2, 3, 4}}, {"b", {1}, {6}}, {"c", {2}, {7, 8}}});
  toy.job.set_mode(mode);
  toy.job.set_restorable(true);
  (*toy.job.mutable_optimizer()->mutable_hyperparameters())["momentum"] = 0.5;
  return toy;
}

std::vector<float> GradientOf(int64_t version, int worker) {
  std::vector<float> gradient(7);
  for (size_t i = 0; i < gradient.size(); ++i)
    gradient[i] = static_cast<float>((static_cast<int64_t>(i) + version + worker) % 3) - 1;
  return gradient;
}

// Steps until `version` and recovers from failures; the chief restores lost values from `source`.
void TrainTo(int64_t version, const v1::Job& job, ToyWorker& worker, int index, Memory& source) {
  client::TrainingClient& client = worker.client();
  int recoveries = 0;
  while (client.steps().version() < version) {
    const auto result = worker.Push(GradientOf(client.steps().version(), index));
    if (result.ok()) continue;
    ASSERT_TRUE(client.CanReconnectAfter(result.status())) << result.status();
    ASSERT_LT(++recoveries, 20) << result.status();
    ASSERT_EQ(client.Reconnect(), absl::OkStatus());
    if (index == 0) {
      ASSERT_EQ(client.Initialise(job, source), absl::OkStatus());
    }
    ASSERT_EQ(client.WaitReady(job), absl::OkStatus());
    ASSERT_EQ(client.Join(), absl::OkStatus());
  }
}

void TrainAllTo(int64_t version, const v1::Job& job, ToyWorkers& workers, Memory& source) {
  InParallel(static_cast<int>(workers.size()), [&](int worker) {
    TrainTo(version, job, *workers[static_cast<size_t>(worker)], worker, source);
  });
}

class RestoredServers : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Lost, RestoredServers, testing::Values(0, 1, 2));

TEST_P(RestoredServers, EndAtTheSameBitsAsUndisturbedOnes) {
  const ToyJob toy = Job(3);
  std::vector<float> undisturbed;
  {
    InProcessCluster cluster({.servers = 3});
    ToyWorkers workers = StartAll(cluster, toy);
    Memory none(toy);
    TrainAllTo(20, JobFor(cluster, toy), workers, none);
    undisturbed = workers[0]->Values();
  }
  InProcessCluster cluster({.servers = 3, .longest_delay = std::chrono::microseconds(200)});
  ToyWorkers workers = StartAll(cluster, toy);
  Memory memory(toy);
  const v1::Job job = JobFor(cluster, toy);
  TrainAllTo(7, job, workers, memory);
  memory.Take(workers[0]->client());
  EXPECT_EQ(memory.newest().progress.version(), 7);
  TrainAllTo(12, job, workers, memory);
  Thread killer("killer", [&] { cluster.Restart(GetParam()); });
  TrainAllTo(20, job, workers, memory);
  killer.Join();
  EXPECT_EQ(workers[0]->Values(), undisturbed);
  const auto counters = workers[0]->client().control().ServerCounters();
  ASSERT_TRUE(counters.ok());
  EXPECT_EQ(counters->accepted(), 3 * 20) << "those before the snapshot and those after it";
}

// A rollback that found some servers ready requests one generation more than a rollback that found none.
TEST(RestoredJob, ContinuesAfterARollbackThatHadBegunALaterGeneration) {
  InProcessCluster cluster({.servers = 2});
  const ToyJob toy = Job(1);
  ToyWorkers workers = StartAll(cluster, toy);
  Memory memory(toy);
  const v1::Job job = JobFor(cluster, toy);
  TrainAllTo(3, job, workers, memory);
  memory.Take(workers[0]->client());
  v1::CreateRequest begun;
  *begun.mutable_job() = workers[0]->client().connection().Describe(0).value().job();
  begun.mutable_job()->set_generation(5);
  for (int server : {0, 1}) cluster.Restart(server);
  v1::VariableSlice& slice = *begun.add_slices();
  slice.set_name("a");
  slice.add_shape(4);
  slice.set_row_end(4);
  cluster.server(0)->Create(begun,
                            [](const auto& response) { ASSERT_TRUE(response.ok()) << response.status(); });
  TrainAllTo(6, job, workers, memory);
  EXPECT_EQ(workers[0]->client().connection().Describe(0).value().job().generation(), 6);
}

// Other workers may have trained in that generation, although the chief does not know that it was complete.
TEST(RestoredJob, ARollbackThatLeftNothingIsRepeatedInTheNextGeneration) {
  InProcessCluster cluster({.servers = 2});
  const ToyJob toy = Job(1);
  ToyWorkers workers = StartAll(cluster, toy);
  Memory memory(toy);
  client::TrainingClient& chief = workers[0]->client();
  const v1::Job job = JobFor(cluster, toy);
  TrainAllTo(3, job, workers, memory);
  memory.Take(chief);
  for (int64_t generation : {1, 2}) {
    for (int server : {0, 1}) cluster.Restart(server);
    ASSERT_EQ(chief.Reconnect(), absl::OkStatus());
    ASSERT_EQ(chief.Initialise(job, memory), absl::OkStatus());
    EXPECT_EQ(chief.connection().Describe(0).value().job().generation(), generation);
  }
}

TEST(RestoredJob, StartsAgainIfThereIsNoSnapshot) {
  InProcessCluster cluster({.servers = 2});
  const ToyJob toy = Job(1);
  ToyWorkers workers = StartAll(cluster, toy);
  Memory memory(toy);
  const v1::Job job = JobFor(cluster, toy);
  TrainAllTo(3, job, workers, memory);
  const std::vector<float> before = workers[0]->Values();
  cluster.Restart(1);
  TrainAllTo(3, job, workers, memory);
  EXPECT_EQ(workers[0]->Values(), before);
}

TEST(RestoredJob, ContinuesInAnotherClusterWithOtherServers) {
  const ToyJob toy = Job(2);
  std::vector<float> expected;
  Memory memory(toy);
  {
    InProcessCluster cluster({.servers = 2});
    ToyWorkers workers = StartAll(cluster, toy);
    TrainAllTo(5, JobFor(cluster, toy), workers, memory);
    ASSERT_EQ(workers[0]->client().control().SetLearningRate(0.25), absl::OkStatus());
    memory.Take(workers[0]->client());
    TrainAllTo(9, JobFor(cluster, toy), workers, memory);
    expected = workers[0]->Values();
  }
  for (int servers : {1, 3}) {
    InProcessCluster cluster({.servers = servers});
    const v1::Job job = JobFor(cluster, toy);
    ToyWorkers workers;
    for (int worker = 0; worker < 2; ++worker) {
      workers.push_back(std::make_unique<ToyWorker>(cluster, toy, worker));
      client::TrainingClient& client = workers.back()->client();
      if (worker == 0) {
        ASSERT_EQ(client.Initialise(job, memory), absl::OkStatus());
      }
      ASSERT_EQ(client.WaitReady(job), absl::OkStatus());
      ASSERT_EQ(client.Join(), absl::OkStatus());
      EXPECT_EQ(client.steps().version(), 5);
    }
    TrainAllTo(9, job, workers, memory);
    EXPECT_EQ(workers[0]->Values(), expected) << servers << " servers";
  }
}

TEST(RestoredJob, RestoresThePositionOfEachAsynchronousWorker) {
  InProcessCluster cluster({.servers = 2});
  const ToyJob toy = Job(2, v1::MODE_ASYNC);
  ToyWorkers workers = StartAll(cluster, toy);
  const std::vector<float> gradient(7, 1.0f);
  const auto push = [&](size_t worker, int64_t position) {
    client::Step& step = workers[worker]->client().steps().BeginStep(gradient, 1, position);
    for (int variable : {2, 1, 0}) step.Announce(variable);
    return step.Finish().status();
  };
  for (int64_t position : {1, 2, 3}) ASSERT_EQ(push(0, position), absl::OkStatus());
  ASSERT_EQ(push(1, 1), absl::OkStatus());
  Memory memory(toy);
  memory.Take(workers[0]->client());
  EXPECT_THAT(memory.newest().progress.positions(), ElementsAre(3, 1));
  ASSERT_EQ(push(1, 2), absl::OkStatus());
  cluster.Restart(1);

  const v1::Job job = JobFor(cluster, toy);
  for (size_t worker : {0, 1}) {
    client::TrainingClient& client = workers[worker]->client();
    EXPECT_EQ(push(worker, 9).code(), absl::StatusCode::kAborted);
    ASSERT_EQ(client.Reconnect(), absl::OkStatus());
    if (worker == 0) {
      ASSERT_EQ(client.Initialise(job, memory), absl::OkStatus());
    }
    ASSERT_EQ(client.WaitReady(job), absl::OkStatus());
    ASSERT_EQ(client.Join(), absl::OkStatus());
    EXPECT_EQ(client.steps().version(), 4);
    EXPECT_EQ(client.start().position, worker == 0 ? 3 : 1);
  }
}

TEST(RestartedWorker, DoesNotRepeatAnAsynchronousPushThatReachedOnlySomeServers) {
  InProcessCluster cluster({.servers = 2});
  ToyJob toy = Job(2, v1::MODE_ASYNC);
  toy.step_timeout = std::chrono::seconds(1);
  ToyWorkers workers = StartAll(cluster, toy);
  cluster.link("worker/1", 0).SetReachable(false);
  const std::vector<float> gradient(7, 1.0f);
  client::Step& before = workers[1]->client().steps().BeginStep(gradient, 1, /*position=*/1);
  for (int variable : {2, 1, 0}) before.Announce(variable);
  EXPECT_EQ(before.Finish().status().code(), absl::StatusCode::kUnavailable);
  const auto reached = workers[0]->client().connection().Describe(1);
  ASSERT_TRUE(reached.ok()) << reached.status();
  EXPECT_EQ(reached->version(), 1);

  cluster.link("worker/1", 0).SetReachable(true);
  cluster.server(0)->PushStreamBroke(1, 1);  // it was killed
  ToyWorker restarted(cluster, toy, 1);
  ASSERT_EQ(restarted.client().WaitReady(JobFor(cluster, toy)), absl::OkStatus());
  ASSERT_EQ(restarted.client().Join(), absl::OkStatus());
  EXPECT_EQ(restarted.client().start().position, 1);
}

TEST(Snapshot, HasOneVersionWhileUpdatesContinue) {
  InProcessCluster cluster({.servers = 3, .longest_delay = std::chrono::microseconds(100)});
  ToyJob toy(2, {{"a", {1}, {0}}, {"b", {1}, {0}}, {"c", {1}, {0}}});
  (*toy.job.mutable_optimizer()->mutable_hyperparameters())["momentum"] = 0;
  ToyWorkers workers = StartAll(cluster, toy);
  std::atomic<bool> stop{false};
  Thread other("other", [&] {
    while (!stop) {
      if (workers[1]->Push(std::vector<float>{-1, -1, -1})->outcome != v1::OUTCOME_ACCEPTED) break;
    }
  });
  Memory memory(toy);
  for (int step = 0; step < 30; ++step) {
    const auto marked = workers[0]->client().control().PlaceSnapshotMarker();
    ASSERT_TRUE(marked.ok()) << marked.status();
    ASSERT_TRUE(workers[0]->Push(std::vector<float>{-1, -1, -1}).ok());
    const auto snapshot = client::ReadSnapshot(workers[0]->client().connection(), *marked, {kLimit});
    ASSERT_TRUE(snapshot.ok()) << snapshot.status();
    EXPECT_EQ(snapshot->progress.version(), step);
    for (const auto& server : snapshot->servers) EXPECT_THAT(server.state.span(), Each(step));
  }
  stop = true;
  workers[0]->client().Leave(v1::LEAVE_REASON_FINISHED, "");
  other.Join();
}

TEST(Snapshot, IsRefusedWhenTheNextOneHasBegun) {
  InProcessCluster cluster;
  ToyWorkers workers = StartAll(cluster, Job(1));
  client::TrainingClient& client = workers[0]->client();
  const auto first = client.control().PlaceSnapshotMarker(), second = client.control().PlaceSnapshotMarker();
  ASSERT_TRUE(first.ok() && second.ok());
  const auto late = client::ReadSnapshot(client.connection(), *first, {kLimit});
  EXPECT_EQ(late.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(late.status().message()), HasSubstr("snapshot from ps/0 at host0:2222"));
  EXPECT_TRUE(client::ReadSnapshot(client.connection(), *second, {kLimit}).ok());
}

// A worker was paused for longer than its lease.
TEST(LostLease, IsRecoveredByJoiningAgain) {
  FakeClock clock;
  InProcessCluster cluster({.servers = 2, .clock = &clock});
  ToyJob toy = Job(2);
  toy.job.set_restorable(false);
  toy.job.set_lease_seconds(1000);  // no heartbeat comes in this test
  ToyWorkers workers = StartAll(cluster, toy);
  Memory none(toy);
  const v1::Job job = JobFor(cluster, toy);
  TrainAllTo(2, job, workers, none);
  clock.Advance(std::chrono::seconds(1001));
  cluster.Tick();
  const auto result = workers[1]->Push(std::vector<float>(7, 100.0f));
  EXPECT_EQ(result.status().code(), absl::StatusCode::kAborted);
  ASSERT_TRUE(workers[1]->client().CanReconnectAfter(result.status()));
  TrainAllTo(5, job, workers, none);
  EXPECT_EQ(workers[0]->client().steps().version(), 5);
  EXPECT_EQ(workers[0]->Values(), workers[1]->Values());
}

}  // namespace
}  // namespace cairn::test
