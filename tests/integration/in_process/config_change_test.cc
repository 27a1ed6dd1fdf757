// Config changes by the chief during a job: the learning rate, an earlier end, and values at the end.
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/in_process_cluster.h"
#include "tests/support/toy_job.h"

namespace cairn::test {
namespace {

using testing::ElementsAre;

// Two variables. With two servers, each holds one of them.
ToyJob TwoVariables(int workers, v1::Mode mode = v1::MODE_SYNC) {
  ToyJob toy(workers, {{"a", {1}, {0}}, {"b", {1}, {0}}});
  toy.job.set_mode(mode);
  return toy;
}

// Waits until the open round lacks only the chief's push.
void AwaitPushOfTheOthers(InProcessCluster& cluster, const ToyJob& toy) {
  const auto job = cluster.server(0)->JobToFollow(toy.job.run_id(), /*generation=*/0);
  ASSERT_TRUE(job.ok()) << job.status();
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while ((*job)->sequencer()->WaitingFor() != std::vector<int>{0}) {
    ASSERT_LT(std::chrono::steady_clock::now(), limit);
    std::this_thread::yield();
  }
}

TEST(EarlyEnd, RefusesPushesUnderWayOnEveryServer) {
  for (const int servers : {1, 2}) {
    InProcessCluster cluster({.servers = servers, .longest_delay = std::chrono::microseconds(200)});
    const ToyJob toy = TwoVariables(2);
    ToyWorkers workers = StartAll(cluster, toy);
    PushAll(workers, {{1, 2}, {3, 4}});
    absl::StatusOr<client::StepResult> late;
    std::thread other([&] { late = workers[1]->Push(std::vector<float>{100, 100}); });
    AwaitPushOfTheOthers(cluster, toy);
    EXPECT_EQ(workers[0]->client().control().EndTraining(), absl::OkStatus());
    other.join();
    ASSERT_TRUE(late.ok()) << late.status();
    EXPECT_EQ(late->outcome, v1::OUTCOME_FINISHED);
    for (auto& worker : workers) {
      EXPECT_TRUE(worker->client().steps().finished());
      EXPECT_EQ(worker->client().steps().version(), 1);
      EXPECT_THAT(worker->Values(), ElementsAre(-2, -3));
    }
  }
}

TEST(EarlyEnd, IsKnownToARestartedWorker) {
  for (const v1::Mode mode : {v1::MODE_SYNC, v1::MODE_ASYNC}) {
    InProcessCluster cluster({.servers = 2});
    const ToyJob toy = TwoVariables(1, mode);
    ToyWorkers workers = StartAll(cluster, toy);
    EXPECT_FALSE(workers[0]->client().steps().finished());
    ASSERT_EQ(workers[0]->client().control().EndTraining(), absl::OkStatus());
    cluster.server(0)->PushStreamBroke(0, 1);  // it was killed
    ToyWorker again(cluster, toy, 0);
    ASSERT_EQ(again.client().WaitReady(JobFor(cluster, toy)), absl::OkStatus());
    ASSERT_EQ(again.client().Join(), absl::OkStatus());
    EXPECT_TRUE(again.client().steps().finished());
    EXPECT_EQ(again.Push(std::vector<float>{1, 1})->outcome, v1::OUTCOME_FINISHED);
    EXPECT_THAT(again.Values(), ElementsAre(0, 0));
  }
}

TEST(EarlyEnd, StopsAsynchronousWorkersAtTheirNextPush) {
  InProcessCluster cluster({.servers = 2});
  ToyWorkers workers = StartAll(cluster, TwoVariables(2, v1::MODE_ASYNC));
  ASSERT_TRUE(workers[1]->Push(std::vector<float>{1, 1}).ok());
  ASSERT_EQ(workers[0]->client().control().EndTraining(), absl::OkStatus());
  EXPECT_FALSE(workers[1]->client().steps().finished());
  EXPECT_EQ(workers[1]->Push(std::vector<float>{1, 1})->outcome, v1::OUTCOME_FINISHED);
  EXPECT_TRUE(workers[1]->client().steps().finished());
  EXPECT_THAT(workers[1]->Values(), ElementsAre(-1, -1));
}

TEST(LearningRate, ChangesFromOneVersionOnOnEveryServer) {
  for (const v1::Mode mode : {v1::MODE_SYNC, v1::MODE_ASYNC}) {
    InProcessCluster cluster({.servers = 2, .longest_delay = std::chrono::microseconds(200)});
    ToyWorkers workers = StartAll(cluster, TwoVariables(1, mode));
    client::TrainingClient& chief = workers[0]->client();
    EXPECT_EQ(chief.control().LearningRate().value(), 1);
    ASSERT_TRUE(workers[0]->Push(std::vector<float>{1, 2}).ok());
    ASSERT_EQ(chief.control().SetLearningRate(0.25f), absl::OkStatus());
    ASSERT_TRUE(workers[0]->Push(std::vector<float>{4, 8}).ok());
    EXPECT_THAT(workers[0]->Values(), ElementsAre(-2, -4));
    EXPECT_EQ(chief.control().LearningRate().value(), 0.25f);
  }
}

v1::GroupSettings Rate(float rate) {
  v1::GroupSettings settings;
  settings.set_learning_rate(rate);
  return settings;
}

// As TwoVariables(), each in a group of its own.
ToyJob TwoGroups(int workers, v1::Mode mode) {
  ToyJob toy = TwoVariables(workers, mode);
  for (const char* name : {"a", "b"}) toy.job.add_variable_groups()->add_variables(name);
  if (mode == v1::MODE_SSP) toy.job.set_max_staleness(1);
  return toy;
}

TEST(Groups, SettingsHoldFromTheUpdateOfTheChiefsPushOnOnEveryServer) {
  for (const v1::Mode mode : {v1::MODE_SYNC, v1::MODE_ASYNC, v1::MODE_SSP}) {
    InProcessCluster cluster({.servers = 2, .longest_delay = std::chrono::microseconds(200)});
    ToyWorkers workers = StartAll(cluster, TwoGroups(1, mode));
    client::ServerSteps& steps = workers[0]->client().steps();
    for (const int server : {0, 1}) {
      cluster.link("worker/0", server).TapCalls([](const std::string& message) {
        EXPECT_THAT(message, testing::Not(testing::HasSubstr("ChangeConfig"))) << "settings need no call";
      });
    }
    steps.SetGroups({Rate(0.5f), Rate(0.25f)});
    ASSERT_TRUE(workers[0]->Push(std::vector<float>{4, 8}).ok());
    EXPECT_THAT(workers[0]->Values(), ElementsAre(-2, -2));
    ASSERT_TRUE(workers[0]->Push(std::vector<float>{4, 8}).ok());
    EXPECT_THAT(workers[0]->Values(), ElementsAre(-4, -4));
    steps.SetGroups({Rate(1), Rate(0)});
    ASSERT_TRUE(workers[0]->Push(std::vector<float>{1, 1}).ok());
    EXPECT_THAT(workers[0]->Values(), ElementsAre(-5, -4));
  }
}

TEST(Groups, SettingsOfAStalePushComeWithTheNext) {
  InProcessCluster cluster({.servers = 2});
  ToyJob toy = TwoGroups(2, v1::MODE_SYNC);
  toy.job.set_replicas_to_aggregate(1);
  ToyWorkers workers = StartAll(cluster, toy);
  ASSERT_TRUE(workers[1]->Push(std::vector<float>{1, 1}).ok());
  workers[0]->client().steps().SetGroups({Rate(0.5f), Rate(0)});
  const auto stale = workers[0]->Push(std::vector<float>{1, 1});
  ASSERT_TRUE(stale.ok()) << stale.status();
  EXPECT_EQ(stale->outcome, v1::OUTCOME_STALE);
  EXPECT_THAT(workers[0]->Values(), ElementsAre(-1, -1));
  ASSERT_TRUE(workers[0]->Push(std::vector<float>{2, 2}).ok());
  EXPECT_THAT(workers[0]->Values(), ElementsAre(-2, -1));
}

TEST(Groups, ARepeatedPushSetsThemOnce) {
  for (const v1::Mode mode : {v1::MODE_SYNC, v1::MODE_ASYNC}) {
    InProcessCluster cluster({.servers = 2});
    ToyWorkers workers = StartAll(cluster, TwoGroups(1, mode));
    const auto broken = std::make_shared<bool>(false);
    cluster.link("worker/0", 1).TapServerFrames([broken](const v1::ServerHeader& header) {
      return header.has_done() && !std::exchange(*broken, true) ? Fate::kBreakBefore : Fate::kDeliver;
    });
    workers[0]->client().steps().SetGroups({Rate(0.5f), Rate(0.25f)});
    const auto result = workers[0]->Push(std::vector<float>{4, 8});
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_TRUE(result->duplicate);
    EXPECT_THAT(workers[0]->Values(), ElementsAre(-2, -2));
  }
}

TEST(ConfigChanges, ALostAnswerIsRequestedAgain) {
  for (const v1::Mode mode : {v1::MODE_SYNC, v1::MODE_ASYNC}) {
    InProcessCluster cluster({.servers = 2});
    ToyWorkers workers = StartAll(cluster, TwoVariables(1, mode));
    client::TrainingClient& chief = workers[0]->client();
    for (int server : {0, 1}) cluster.link("worker/0", server).DropReplyTo("ChangeConfigRequest");
    ASSERT_EQ(chief.control().SetLearningRate(0.5f), absl::OkStatus());
    ASSERT_TRUE(workers[0]->Push(std::vector<float>{2, 4}).ok());
    EXPECT_THAT(workers[0]->Values(), ElementsAre(-1, -2));
    cluster.link("worker/0", 0).DropReplyTo("ChangeConfigRequest");
    ASSERT_EQ(chief.control().EndTraining(), absl::OkStatus());
    EXPECT_TRUE(chief.steps().finished());
  }
}

TEST(Write, ReplacesValuesOnEveryServer) {
  InProcessCluster cluster({.servers = 2});
  ToyWorkers workers = StartAll(cluster, TwoVariables(1));
  ASSERT_TRUE(workers[0]->Push(std::vector<float>{1, 1}).ok());
  client::TrainingClient& chief = workers[0]->client();
  ASSERT_EQ(chief.control().EndTraining(), absl::OkStatus());
  ASSERT_EQ(chief.control().Write(std::vector<float>{7, 8}, {}), absl::OkStatus());
  EXPECT_THAT(workers[0]->Values(), ElementsAre(7, 8));
  EXPECT_EQ(chief.steps().version(), 1);
  EXPECT_TRUE(chief.steps().finished());
}

}  // namespace
}  // namespace cairn::test
