// Restarted chiefs and servers, and clusters that train another job.
#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "client/job_end.h"
#include "common/net/data_channel/shared_memory/shared_buffer.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/in_process_cluster.h"
#include "tests/support/toy_job.h"

namespace cairn::test {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

std::string MessageOf(const absl::Status& status) {
  return std::string(status.message());
}

ToyJob TwoVariables(int workers) {
  return ToyJob(workers, {{"a", {1}, {5}}, {"b", {1}, {6}}});
}

// A chief dies before it has initialised all servers, and another one continues.
TEST(ChiefRestart, CompletesAJobWithoutValues) {
  InProcessCluster cluster({.servers = 2});
  ToyJob toy = TwoVariables(1);
  for (int server : {0, 1}) {
    cluster.link("worker/0", server).TapClientFrames([](const v1::ClientHeader&) {
      return Fate::kBreakBefore;
    });
  }
  {
    ToyWorker chief(cluster, toy, 0);
    client::FirstValues first(toy.initial);
    EXPECT_EQ(chief.client().Initialise(JobFor(cluster, toy), first).code(), absl::StatusCode::kUnavailable);
  }
  for (int server : {0, 1}) cluster.link("worker/0", server).TapClientFrames(nullptr);
  toy.job.set_run_id("second");
  ToyWorkers workers = StartAll(cluster, toy);
  EXPECT_THAT(workers[0]->Values(), ElementsAre(5, 6));
  EXPECT_TRUE(workers[0]->Push(std::vector<float>{1, 1}).ok());
}

// With a new job on ps/0, its sequencer is not the one that a ready ps/1 follows.
class ChiefRestartWithOneServerReady : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(OfTwo, ChiefRestartWithOneServerReady, testing::Values(0, 1));

TEST_P(ChiefRestartWithOneServerReady, TheNextChiefCompletesTheCluster) {
  const int ready = GetParam(), not_ready = 1 - ready;
  InProcessCluster cluster({.servers = 2});
  ToyJob toy = TwoVariables(1);
  cluster.link("worker/0", not_ready).TapClientFrames([&](const v1::ClientHeader&) {
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!cluster.server(ready)->ready() && std::chrono::steady_clock::now() < limit)
      std::this_thread::yield();
    return Fate::kBreakBefore;
  });
  {
    ToyWorker chief(cluster, toy, 0);
    client::FirstValues first(toy.initial);
    EXPECT_EQ(chief.client().Initialise(JobFor(cluster, toy), first).code(), absl::StatusCode::kUnavailable);
  }
  ASSERT_TRUE(cluster.server(ready)->ready());
  cluster.link("worker/0", not_ready).TapClientFrames(nullptr);
  toy.job.set_run_id("second");
  ToyWorkers workers = StartAll(cluster, toy);
  ASSERT_TRUE(workers[0]->Push(std::vector<float>{1, 1}).ok());
  EXPECT_THAT(workers[0]->Values(), ElementsAre(4, 5));
}

TEST(ChiefRestart, DoesNotRollBackServersThatTrain) {
  InProcessCluster cluster({.servers = 2});
  ToyJob toy = TwoVariables(1);
  {
    ASSERT_TRUE(StartAll(cluster, toy)[0]->Push(std::vector<float>{1, 1}).ok());
  }
  toy.job.set_run_id("second");
  ToyWorkers again = StartAll(cluster, toy);
  EXPECT_EQ(again[0]->client().steps().version(), 1);
  EXPECT_THAT(again[0]->Values(), ElementsAre(4, 5));
  EXPECT_EQ(again[0]->Push(std::vector<float>{1, 1})->outcome, v1::OUTCOME_ACCEPTED);
  EXPECT_THAT(again[0]->Values(), ElementsAre(3, 4));
}

TEST(JobMismatch, IsNamedFieldByField) {
  InProcessCluster cluster({.servers = 2});
  ToyJob toy = TwoVariables(2);
  ToyWorkers workers = StartAll(cluster, toy);
  ToyJob other = TwoVariables(2);
  other.job.set_mode(v1::MODE_ASYNC);
  other.job.set_batch_size(64);
  (*other.job.mutable_optimizer()->mutable_hyperparameters())["learning_rate"] = 0.5;
  ToyWorker stranger(cluster, other, 1);
  const absl::Status status = stranger.client().WaitReady(JobFor(cluster, other));
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(MessageOf(status),
              AllOf(HasSubstr("worker/1"), HasSubstr("mode: async here, sync"),
                    HasSubstr("batch size: 64 here, 1"), HasSubstr("learning_rate: 0.5 here, 1")));
}

TEST(JobMismatch, NamesASettingOfTheSchedule) {
  InProcessCluster cluster;
  ToyJob toy = TwoVariables(2), other = TwoVariables(2);
  for (ToyJob* job : {&toy, &other}) {
    job->job.mutable_optimizer()->mutable_hyperparameters()->clear();
    v1::LearningRateSchedule& schedule = *job->job.mutable_optimizer()->mutable_learning_rate_schedule();
    schedule.set_name("CosineDecay");
    (*schedule.mutable_numbers())["initial_learning_rate"] = 1;
    (*schedule.mutable_numbers())["decay_steps"] = job == &toy ? 10 : 20;
  }
  ToyWorkers workers = StartAll(cluster, toy);
  ToyWorker stranger(cluster, other, 1);
  EXPECT_THAT(MessageOf(stranger.client().WaitReady(JobFor(cluster, other))),
              HasSubstr("schedule decay_steps: 20 here, 10 on the servers"));
}

TEST(JobMismatch, NamesAHyperparameterThatOnlyTheServersHave) {
  InProcessCluster cluster;
  ToyJob toy = TwoVariables(2);
  (*toy.job.mutable_optimizer()->mutable_hyperparameters())["momentum"] = 0.9;
  ToyWorkers workers = StartAll(cluster, toy);
  const ToyJob other = TwoVariables(2);
  ToyWorker stranger(cluster, other, 1);
  EXPECT_THAT(MessageOf(stranger.client().WaitReady(JobFor(cluster, other))),
              HasSubstr("momentum: unset here, 0.9"));
}

TEST(JobMismatch, NamesAVariableOfAnotherShape) {
  InProcessCluster cluster;
  ToyWorkers workers = StartAll(cluster, TwoVariables(2));
  const ToyJob other(2, {{"a", {2}, {5, 5}}, {"b", {1}, {6}}});
  ToyWorker stranger(cluster, other, 1);
  EXPECT_THAT(MessageOf(stranger.client().WaitReady(JobFor(cluster, other))),
              HasSubstr("variable 'a' has shape"));
}

TEST(ServerRestart, IsNoticedByAWaitingWorker) {
  InProcessCluster cluster({.servers = 2});
  ToyWorkers workers = StartAll(cluster, TwoVariables(2));
  absl::StatusOr<client::StepResult> result;
  Thread waiting("waiting", [&] { result = workers[0]->Push(std::vector<float>{1, 1}); });
  cluster.Restart(1);
  waiting.Join();
  EXPECT_EQ(result.status().code(), absl::StatusCode::kAborted);
  EXPECT_THAT(MessageOf(result.status()), AllOf(HasSubstr("ps/1 at host1:2222"), HasSubstr("restarted")));
}

TEST(ServerRestart, IsNoticedByAPull) {
  InProcessCluster cluster;
  ToyWorkers workers = StartAll(cluster, TwoVariables(1));
  cluster.Restart(0);
  EXPECT_EQ(workers[0]->client().steps().Pull().code(), absl::StatusCode::kAborted);
}

TEST(ServerRestart, AServerThatDoesNotReturnIsNamed) {
  InProcessCluster cluster({.servers = 2});
  ToyJob toy = TwoVariables(1);
  toy.step_timeout = std::chrono::milliseconds(300);
  ToyWorkers workers = StartAll(cluster, toy);
  cluster.Kill(1);
  const auto result = workers[0]->Push(std::vector<float>{1, 1});
  EXPECT_EQ(result.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(MessageOf(result.status()),
              AllOf(HasSubstr("ps/1 at host1:2222 is down or unreachable: connection refused"),
                    HasSubstr("step 1 of worker/0")));
}

// The server that does not answer may still read the gradient from its old memory.
TEST(ServerRestart, AfterAnAbandonedPushGradientsAreWrittenToOtherMemory) {
  InProcessCluster cluster({.servers = 2});
  ToyJob toy = TwoVariables(1);
  toy.step_timeout = std::chrono::milliseconds(300);
  ToyWorkers workers = StartAll(cluster, toy);
  net::SharedBuffer gradient(2);
  const absl::Span<const float> elements = gradient.span();
  const auto region = [&] { return net::SharedBuffer::RegionOf({&elements, 1}); };
  const auto first = region();
  ASSERT_NE(first, nullptr);
  ASSERT_TRUE(workers[0]->Push(elements).ok());
  EXPECT_EQ(region(), first);
  cluster.Kill(1);
  gradient.data()[0] = 7;
  EXPECT_EQ(workers[0]->Push(elements).status().code(), absl::StatusCode::kUnavailable);
  ASSERT_NE(region(), nullptr);
  EXPECT_NE(region(), first);
  EXPECT_THAT(gradient.span(), ElementsAre(7, 0));
}

TEST(ServerRestart, TrainedServersDoNotContinueWithOthersThatLostTheirVariables) {
  InProcessCluster cluster({.servers = 2});
  ToyJob toy = TwoVariables(1);
  ASSERT_TRUE(StartAll(cluster, toy)[0]->Push(std::vector<float>{1, 1}).ok());
  cluster.Restart(1);
  ToyWorker chief(cluster, toy, 0);
  client::FirstValues first(toy.initial);
  const absl::Status status = chief.client().Initialise(JobFor(cluster, toy), first);
  EXPECT_EQ(status.code(), absl::StatusCode::kAborted);
  EXPECT_THAT(MessageOf(status),
              HasSubstr("1 of 2 servers have lost their variables, the others are at version 1"));
}

// A worker between two steps meets a restarted server with a new job, in which the same worker has the same
// incarnation number. Its push is refused, and leaves no trace in the new job's ledger.
TEST(ServerRestart, PushesOfTheOldJobAreRefusedByTheNewOne) {
  InProcessCluster cluster;
  ToyJob toy = TwoVariables(1);
  ToyWorkers before = StartAll(cluster, toy);
  for (int step = 0; step < 3; ++step) ASSERT_TRUE(before[0]->Push(std::vector<float>{1, 1}).ok());
  cluster.Restart(0);
  ToyWorkers after = StartAll(cluster, toy);
  EXPECT_EQ(before[0]->Push(std::vector<float>{90, 90}).status().code(), absl::StatusCode::kAborted);
  const auto result = after[0]->Push(std::vector<float>{1, 1});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->outcome, v1::OUTCOME_ACCEPTED);
  EXPECT_THAT(after[0]->Values(), ElementsAre(4, 5));
}

TEST(EndOfTraining, LateWorkersLearnThatTheJobIsDone) {
  InProcessCluster cluster({.servers = 2});
  ToyJob toy = TwoVariables(1);
  ToyWorkers workers = StartAll(cluster, toy);
  workers[0]->client().Leave(v1::LEAVE_REASON_FINISHED, "");
  EXPECT_EQ(workers[0]->client().control().Finish(), absl::OkStatus());
  for (int server : {0, 1}) EXPECT_EQ(cluster.server(server)->ended(), ExitCode::kDone);
  ToyWorker late(cluster, toy, 0);
  EXPECT_TRUE(client::IsOver(late.client().WaitReady(JobFor(cluster, toy))));
}

TEST(EndOfTraining, AMemberThatWasAwayLearnsOfItInAnyCall) {
  InProcessCluster cluster({.servers = 2});
  ToyJob toy = TwoVariables(3);
  toy.job.set_mode(v1::MODE_ASYNC);
  toy.job.set_lease_seconds(0.2);  // heartbeats each 50 ms
  ToyWorkers workers = StartAll(cluster, toy);
  EXPECT_EQ(workers[0]->client().control().Finish(), absl::OkStatus());
  for (int server : {0, 1}) cluster.server(server)->Shutdown();
  EXPECT_TRUE(client::IsOver(workers[1]->Push(std::vector<float>{1, 1}).status()));
  EXPECT_TRUE(client::IsOver(workers[2]->client().steps().Pull()));
}

class AWorkerThatIsDone : public testing::Test {
 protected:
  // Starts two workers. The second one leaves and waits for the end.
  void Start(ToyJob toy) {
    workers_ = StartAll(cluster_, toy);
    workers_[1]->client().Leave(v1::LEAVE_REASON_FINISHED, "");
    waiting_ = Thread("waiting", [this] {
      end_ = workers_[1]->client().AwaitEnd();
      ended_ = true;
    });
  }
  absl::Status End() {
    waiting_.Join();
    return end_;
  }
  static ToyJob Restorable() {
    ToyJob toy = TwoVariables(2);
    toy.job.set_mode(v1::MODE_ASYNC);
    toy.job.set_restorable(true);
    return toy;
  }

  InProcessCluster cluster_{{.servers = 2}};
  ToyWorkers workers_;
  std::atomic<bool> ended_{false};
  absl::Status end_;
  Thread waiting_;
};

TEST_F(AWorkerThatIsDone, WaitsForTheChief) {
  Start(Restorable());
  for (int step = 0; step < 20; ++step) {
    ASSERT_TRUE(workers_[0]->Push(std::vector<float>{1, 1}).ok());
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  EXPECT_FALSE(ended_);
  EXPECT_EQ(workers_[0]->client().control().WaitForOthers(std::chrono::seconds(10)), absl::OkStatus());
  EXPECT_EQ(workers_[0]->client().control().Finish(), absl::OkStatus());
  EXPECT_EQ(End(), absl::OkStatus());
}

TEST_F(AWorkerThatIsDone, HasWorkAgainWhenAServerIsLostBeforeTheEnd) {
  Start(Restorable());
  cluster_.Restart(1);
  EXPECT_EQ(End().code(), absl::StatusCode::kAborted);
  EXPECT_TRUE(workers_[1]->client().CanReconnectAfter(end_));
}

TEST_F(AWorkerThatIsDone, DoesNotWaitIfNothingIsRolledBack) {
  ToyJob toy = Restorable();
  toy.job.set_restorable(false);
  Start(toy);
  EXPECT_EQ(End(), absl::OkStatus());
}

TEST_F(AWorkerThatIsDone, DoesNotWaitForeverForALostChief) {
  ToyJob toy = Restorable();
  toy.step_timeout = std::chrono::milliseconds(100);
  Start(toy);
  EXPECT_EQ(End(), absl::OkStatus());
}

TEST_F(AWorkerThatIsDone, EndsWhenItIsStopped) {
  Start(Restorable());
  workers_[1]->client().Interrupt(absl::CancelledError("stopped"));
  EXPECT_EQ(End(), absl::CancelledError("stopped"));
}

}  // namespace
}  // namespace cairn::test
