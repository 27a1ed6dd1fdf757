// What optimizers ask of a whole cluster: norms, schedules, and variables that no optimizer trains.
#include <map>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/in_process_cluster.h"
#include "tests/support/toy_job.h"

namespace cairn::test {
namespace {

using testing::ElementsAre;

// Values after three rounds of two workers on a matrix that is split where it may be.
std::vector<float> Train(const std::string& optimizer, const std::map<std::string, double>& hyperparameters,
                         int servers) {
  InProcessCluster cluster({.servers = servers});
  ToyJob toy(2, {{"a", {4, 2}, {1, 2, 3, 4, 5, 6, 7, 8}}, {"b", {2}, {1, -1}}});
  toy.split_bytes = 8;
  toy.job.mutable_optimizer()->set_name(optimizer);
  toy.job.mutable_optimizer()->mutable_hyperparameters()->insert(hyperparameters.begin(),
                                                                 hyperparameters.end());
  ToyWorkers workers = StartAll(cluster, toy);
  for (int round = 1; round <= 3; ++round) {
    const float k = static_cast<float>(round);
    PushAll(workers, {{k, 0, 1, -1, 2, 0.5f, 3, k, 4, 1}, {-1, k, 2, 2, k, 1, 1, 1, -k, 2}});
  }
  return workers[1]->Values();
}

TEST(OptimizersOfNorms, AgreeToTheBitForAnyNumberOfServers) {
  EXPECT_EQ(Train("SGD", {{"clipnorm", 0.5}}, 3), Train("SGD", {{"clipnorm", 0.5}}, 1));
  EXPECT_EQ(Train("Lamb", {}, 3), Train("Lamb", {}, 1));
}

TEST(OptimizersOfNorms, AGlobalNormIsRefusedWithTwoServers) {
  InProcessCluster cluster({.servers = 2});
  ToyJob toy(1, {{"a", {1}, {0}}});
  (*toy.job.mutable_optimizer()->mutable_hyperparameters())["global_clipnorm"] = 1;
  ToyWorker chief(cluster, toy, 0);
  const absl::Status status = chief.client().Initialise(JobFor(cluster, toy), toy.initial);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
}

TEST(Schedules, AreEvaluatedAtTheVersionOnEveryServer) {
  InProcessCluster cluster({.servers = 2});
  ToyJob toy(1, {{"a", {1}, {0}}, {"b", {1}, {0}}});
  toy.job.mutable_optimizer()->mutable_hyperparameters()->clear();
  v1::LearningRateSchedule& schedule = *toy.job.mutable_optimizer()->mutable_learning_rate_schedule();
  schedule.set_name("PiecewiseConstantDecay");
  schedule.add_boundaries(1);
  schedule.add_values(4);
  schedule.add_values(1);
  ToyWorkers workers = StartAll(cluster, toy);
  for (float expected : {-4.0f, -8.0f, -9.0f}) {
    PushAll(workers, {{1, 1}});
    EXPECT_THAT(workers[0]->Values(), ElementsAre(expected, expected));
  }
}

TEST(MovingAverages, FollowTheMeanOfTheWorkersStatistics) {
  InProcessCluster cluster({.servers = 2});
  ToyJob toy(2, {{"kernel", {1}, {8}}, {"mean", {2}, {8, 0}}, {"frozen", {1}, {8}}});
  toy.variables[1].moving_average_momentum = 0.75f;
  toy.variables[2].moving_average_momentum = 1;
  ToyWorkers workers = StartAll(cluster, toy);
  PushAll(workers, {{2, 16, 4, 100}, {4, 32, 8, -1}}, /*examples=*/{3, 1});
  EXPECT_THAT(workers[0]->Values(), ElementsAre(5.5f, 11, 1.25f, 8));
}

TEST(MovingAverages, AreKeptByAsynchronousServersToo) {
  InProcessCluster cluster({.servers = 2});
  ToyJob toy(2, {{"kernel", {1}, {8}}, {"mean", {1}, {8}}});
  toy.variables[1].moving_average_momentum = 0.75f;
  toy.job.set_mode(v1::MODE_ASYNC);
  ToyWorkers workers = StartAll(cluster, toy);
  EXPECT_EQ(workers[0]->Push(std::vector<float>{1, 16})->outcome, v1::OUTCOME_ACCEPTED);
  EXPECT_EQ(workers[1]->Push(std::vector<float>{1, 0})->outcome, v1::OUTCOME_ACCEPTED);
  EXPECT_THAT(workers[1]->Values(), ElementsAre(6, 7.5f));
}

TEST(Ema, TheLastVersionIsTheAverage) {
  InProcessCluster cluster({.servers = 2});
  ToyJob toy(1, {{"a", {1}, {4}}, {"b", {1}, {0}}});
  toy.job.set_final_version(2);
  (*toy.job.mutable_optimizer()->mutable_hyperparameters())["use_ema"] = 1;
  (*toy.job.mutable_optimizer()->mutable_hyperparameters())["ema_momentum"] = 0.5;
  ToyWorkers workers = StartAll(cluster, toy);
  PushAll(workers, {{2, 2}});
  EXPECT_THAT(workers[0]->Values(), ElementsAre(2, -2));
  PushAll(workers, {{2, 2}});
  EXPECT_THAT(workers[0]->Values(), ElementsAre(1, -3));
}

}  // namespace
}  // namespace cairn::test
