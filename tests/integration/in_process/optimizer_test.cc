// Optimizers on a whole cluster: norms, schedules, and variables that no optimizer trains.
#include <atomic>
#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/core/random.h"
#include "common/core/status.h"
#include "common/net/grpc/grpc_util.h"
#include "common/net/wire/update_chunk.h"
#include "common/system/thread.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/fake_clock.h"
#include "tests/support/in_process_cluster.h"
#include "tests/support/toy_job.h"

namespace cairn::test {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

// The job that Train() runs.
struct Training {
  std::string optimizer;
  std::map<std::string, double> hyperparameters;
  v1::Mode mode = v1::MODE_SYNC;
};

// "a" has 700 rows in bands of 3; "a" and "b" are split over all servers. "c" is not split, and "mean" is not
// trained.
ToyJob JobOf(const Training& training, int workers) {
  Random random(1, "optimizer_test");
  const auto normals = [&random](size_t count) {
    std::vector<float> values;
    for (size_t i = 0; i < count; ++i) values.push_back(random.NextNormal());
    return values;
  };
  ToyJob toy(
      workers,
      {{"c", {1}, {2}}, {"a", {700, 5}, normals(3500)}, {"b", {10}, normals(10)}, {"mean", {3}, {1, 2, 3}}});
  toy.variables[3].moving_average_momentum = 0.5f;
  toy.split_bytes = 8;
  toy.job.set_mode(training.mode);
  toy.job.mutable_optimizer()->set_name(training.optimizer);
  toy.job.mutable_optimizer()->mutable_hyperparameters()->insert(training.hyperparameters.begin(),
                                                                 training.hyperparameters.end());
  return toy;
}

std::vector<float> GradientOf(const ToyJob& toy, int worker, int step) {
  Random random(static_cast<uint64_t>(100 * worker + step), "gradient");
  std::vector<float> gradient;
  for (size_t i = 0; i < toy.initial.size(); ++i) gradient.push_back(random.NextNormal());
  return gradient;
}

// The values after five rounds of all workers.
std::vector<float> Train(const ToyJob& toy, int servers, bool break_links = false) {
  InProcessCluster cluster({.servers = servers, .longest_delay = std::chrono::microseconds(100)});
  ToyWorkers workers = StartAll(cluster, toy);
  for (int step = 1; step <= 5; ++step) {
    std::vector<std::vector<float>> gradients;
    for (size_t worker = 0; worker < workers.size(); ++worker) {
      gradients.push_back(GradientOf(toy, static_cast<int>(worker), step));
    }
    std::atomic<bool> busy{true};
    Thread breaker("breaker", [&] {
      for (int server = 1; break_links && busy; server = server % (servers - 1) + 1) {
        cluster.BreakFollower(server);
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
    });
    for (const auto& result : PushAll(workers, gradients)) {
      EXPECT_TRUE(result.ok()) << result.status();
      EXPECT_EQ(result->outcome, v1::OUTCOME_ACCEPTED);
    }
    busy = false;
  }
  EXPECT_EQ(workers.back()->client().steps().version(), 5);
  return workers.back()->Values();
}

// The same of two workers or, asynchronously, of one worker.
std::vector<float> Train(const Training& training, int servers, bool break_links = false) {
  return Train(JobOf(training, training.mode == v1::MODE_SYNC ? 2 : 1), servers, break_links);
}

class OptimizerOfNorms : public testing::TestWithParam<Training> {};
INSTANTIATE_TEST_SUITE_P(Training, OptimizerOfNorms,
                         testing::Values(Training{"SGD", {{"clipnorm", 0.5}}},
                                         Training{"Adam", {{"global_clipnorm", 0.5}}},
                                         Training{"Lamb", {{"weight_decay", 0.1}}},
                                         Training{"Lamb", {{"global_clipnorm", 0.5}}},
                                         Training{"SGD", {{"global_clipnorm", 0.5}}, v1::MODE_ASYNC},
                                         Training{"Lamb", {{"clipnorm", 0.5}}, v1::MODE_ASYNC}),
                         [](const auto& tested) {
                           return absl::StrCat(tested.param.optimizer, tested.index,
                                               tested.param.mode == v1::MODE_SYNC ? "Sync" : "Async");
                         });

TEST_P(OptimizerOfNorms, GivesTheSameBitsOnOneServerAndOnThree) {
  EXPECT_EQ(Train(GetParam(), 3), Train(GetParam(), 1));
}

TEST_P(OptimizerOfNorms, GivesTheSameBitsWhenLinksBetweenServersBreak) {
  EXPECT_EQ(Train(GetParam(), 3, /*break_links=*/true), Train(GetParam(), 1));
}

TEST(OptimizersOfNorms, TheirVariablesAreSplit) {
  InProcessCluster cluster({.servers = 3});
  const ToyJob toy = JobOf({"Lamb", {}}, 1);
  ToyWorker chief(cluster, toy, 0);
  client::FirstValues first(toy.initial);
  ASSERT_EQ(chief.client().Initialise(JobFor(cluster, toy), first), absl::OkStatus());
  for (int server = 0; server < 3; ++server) {
    v1::ConnectRequest request;
    request.set_protocol(net::kProtocolVersion);
    request.set_server(server);
    cluster.server(server)->Connect(request, [](absl::StatusOr<v1::ConnectResponse> response) {
      bool split = false;
      for (const v1::VariableSlice& slice : response->slices()) {
        split |= slice.name() == "a" && slice.row_end() - slice.row_begin() < 300;
      }
      EXPECT_TRUE(split);
    });
  }
}

// The norms are 5 2^k and are clipped to exactly 5, so a push that was scaled by another push's norm would
// show.
TEST(OptimizersOfNorms, EachAsynchronousPushHasTheNormOfItsOwnGradient) {
  constexpr int kWorkers = 3, kSteps = 20;
  InProcessCluster cluster({.servers = 2, .longest_delay = std::chrono::microseconds(200)});
  ToyJob toy(kWorkers, {{"a", {1}, {0}}, {"b", {1}, {0}}});
  toy.job.set_mode(v1::MODE_ASYNC);
  (*toy.job.mutable_optimizer()->mutable_hyperparameters())["global_clipnorm"] = 5;
  ToyWorkers workers = StartAll(cluster, toy);
  InParallel(kWorkers, [&](int w) {
    for (int step = 0; step < kSteps; ++step) {
      const float scale = static_cast<float>(1 << (w + step % 4));
      const auto result = workers[static_cast<size_t>(w)]->Push(std::vector<float>{-3 * scale, -4 * scale});
      ASSERT_TRUE(result.ok()) << result.status();
      ASSERT_EQ(result->outcome, v1::OUTCOME_ACCEPTED);
    }
  });
  ASSERT_EQ(workers[0]->client().steps().Pull(), absl::OkStatus());
  EXPECT_THAT(workers[0]->Values(), ElementsAre(3 * kWorkers * kSteps, 4 * kWorkers * kSteps));
}

TEST(OptimizersOfNorms, AnAsynchronousJobIsReadAndChangedThroughOneServerForAll) {
  InProcessCluster cluster({.servers = 3, .longest_delay = std::chrono::microseconds(200)});
  ToyJob toy(2, {{"a", {1}, {0}}, {"b", {1}, {0}}, {"c", {1}, {0}}});
  toy.job.set_mode(v1::MODE_ASYNC);
  (*toy.job.mutable_optimizer()->mutable_hyperparameters())["clipnorm"] = 1;
  ToyWorkers workers = StartAll(cluster, toy);
  const std::vector<float> gradient = {-8, -8, -8};
  Thread other("other", [&] {
    for (int step = 0; step < 20; ++step) EXPECT_TRUE(workers[1]->Push(gradient).ok());
  });
  for (int read = 0; read < 20; ++read) {
    ASSERT_EQ(workers[0]->client().steps().Pull(), absl::OkStatus());
    EXPECT_THAT(workers[0]->Values(), Each(workers[0]->client().steps().version()))
        << "a mix of two versions";
  }
  other.Join();
  ASSERT_EQ(workers[0]->client().control().SetLearningRate(4), absl::OkStatus());
  ASSERT_TRUE(workers[0]->Push(gradient).ok());
  EXPECT_THAT(workers[0]->Values(), Each(24));
  ASSERT_EQ(workers[0]->client().control().EndTraining(), absl::OkStatus());
  EXPECT_EQ(workers[1]->Push(gradient)->outcome, v1::OUTCOME_FINISHED);
}

// An update is under way, and the sums of ps/1 do not arrive. The test moves the clock.
class SumsThatDoNotCome : public testing::Test {
 protected:
  explicit SumsThatDoNotCome(Duration step_timeout = std::chrono::seconds(20))
      : toy_(2, {{"a", {1}, {0}}, {"b", {1}, {0}}}) {
    (*toy_.job.mutable_optimizer()->mutable_hyperparameters())["global_clipnorm"] = 5;
    toy_.job.set_lease_seconds(3600);
    toy_.step_timeout = step_timeout;
    workers_ = StartAll(cluster_, toy_);
    cluster_.LoseSums(1, true);
    pushes_ = Thread("pushes", [this] { results_ = PushAll(workers_, {{6, 8}, {6, 8}}); });
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (cluster_.lost_sums(1) == 0 && std::chrono::steady_clock::now() < limit) std::this_thread::yield();
    EXPECT_EQ(cluster_.lost_sums(1), 1);
  }
  // ps/0's own sums may be recorded after those of ps/1 were lost.
  void WaitUntilOnlyPs1IsMissing() {
    const auto job = cluster_.server(0)->JobToFollow(JobFor(cluster_, toy_).run_id(), /*generation=*/0);
    ASSERT_TRUE(job.ok()) << job.status();
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while ((*job)->sequencer()->MissingServers() != std::vector{1} &&
           std::chrono::steady_clock::now() < limit) {
      std::this_thread::yield();
    }
    ASSERT_THAT((*job)->sequencer()->MissingServers(), ElementsAre(1));
  }
  const std::vector<absl::StatusOr<client::StepResult>>& Results() {
    pushes_.Join();
    return results_;
  }

  FakeClock clock_;
  InProcessCluster cluster_{{.servers = 2, .clock = &clock_}};
  ToyJob toy_;
  ToyWorkers workers_;
  std::vector<absl::StatusOr<client::StepResult>> results_;
  Thread pushes_;
};

TEST_F(SumsThatDoNotCome, AreSentAgainOnANewLink) {
  cluster_.LoseSums(1, false);
  cluster_.BreakFollower(1);
  for (const auto& result : Results()) EXPECT_EQ(result->outcome, v1::OUTCOME_ACCEPTED) << result.status();
  EXPECT_THAT(workers_[0]->Values(), ElementsAre(-3, -4));
  EXPECT_EQ(workers_[0]->client().steps().version(), 1);
}

TEST_F(SumsThatDoNotCome, EndTheJobAfterAMinuteNamingTheServer) {
  WaitUntilOnlyPs1IsMissing();
  cluster_.Tick();
  clock_.Advance(std::chrono::seconds(60));
  cluster_.Tick();
  for (const auto& result : Results()) {
    EXPECT_EQ(ExitCodeOf(result.status()), ExitCode::kRetryable);
    EXPECT_THAT(std::string(result.status().message()),
                HasSubstr("the update to version 1 has waited 60 s for the norms of the slices on ps/1"));
  }
  EXPECT_EQ(cluster_.server(0)->ended(), std::nullopt) << "it waits to notify the remaining workers";
  for (auto& worker : workers_) worker->client().Leave(v1::LEAVE_REASON_STOPPED, "");
  EXPECT_EQ(cluster_.server(0)->ended(), ExitCode::kRetryable);
}

class SumsThatDoNotComeInASecond : public SumsThatDoNotCome {
 protected:
  SumsThatDoNotComeInASecond() : SumsThatDoNotCome(std::chrono::seconds(1)) {}
};

TEST_F(SumsThatDoNotComeInASecond, EndTheStepNamingAKilledServer) {
  cluster_.Kill(1);
  for (const auto& result : Results()) {
    EXPECT_EQ(ExitCodeOf(result.status()), ExitCode::kRetryable);
    EXPECT_THAT(std::string(result.status().message()), HasSubstr("ps/1 at host1:2222"));
  }
}

TEST_F(SumsThatDoNotCome, EndTheStepNamingARestartedServer) {
  cluster_.Restart(1);
  for (const auto& result : Results()) {
    EXPECT_EQ(ExitCodeOf(result.status()), ExitCode::kRetryable);
    EXPECT_THAT(std::string(result.status().message()),
                HasSubstr("ps/1 at host1:2222 has been restarted and has lost its variables"));
  }
}

TEST_F(SumsThatDoNotComeInASecond, EndTheStepNamingPs0IfItWasKilled) {
  cluster_.Kill(0);
  for (const auto& result : Results()) {
    EXPECT_EQ(ExitCodeOf(result.status()), ExitCode::kRetryable);
    EXPECT_THAT(std::string(result.status().message()), HasSubstr("ps/0 at host0:2222"));
  }
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

TEST(MovingAverages, AreUpdatedByAsynchronousServers) {
  InProcessCluster cluster({.servers = 2});
  ToyJob toy(2, {{"kernel", {1}, {8}}, {"mean", {1}, {8}}});
  toy.variables[1].moving_average_momentum = 0.75f;
  toy.job.set_mode(v1::MODE_ASYNC);
  ToyWorkers workers = StartAll(cluster, toy);
  EXPECT_EQ(workers[0]->Push(std::vector<float>{1, 16})->outcome, v1::OUTCOME_ACCEPTED);
  EXPECT_EQ(workers[1]->Push(std::vector<float>{1, 0})->outcome, v1::OUTCOME_ACCEPTED);
  EXPECT_THAT(workers[1]->Values(), ElementsAre(6, 7.5f));
}

class ConstrainedVariables : public testing::TestWithParam<Training> {
 protected:
  // "c" is non-negative; "a" and "b" are as in JobOf(), with a norm over each column, and over each row.
  static ToyJob Job() {
    ToyJob toy = JobOf(GetParam(), GetParam().mode == v1::MODE_SYNC ? 2 : 1);
    if (GetParam().mode == v1::MODE_SSP) toy.job.set_max_staleness(1);
    toy.variables[0].constraint = Constraint{.non_negative = true};
    toy.variables[1].constraint = Constraint{.axes = {1}, .min_norm = 1, .max_norm = 1};
    toy.variables[2].constraint = Constraint{.axes = {0}, .max_norm = 2};
    return toy;
  }
};
INSTANTIATE_TEST_SUITE_P(Training, ConstrainedVariables,
                         testing::Values(Training{"SGD", {{"momentum", 0.5}}}, Training{"Adam", {}},
                                         Training{"Lamb", {{"global_clipnorm", 0.5}}},
                                         Training{"SGD", {}, v1::MODE_ASYNC},
                                         Training{"Adam", {}, v1::MODE_SSP}),
                         [](const auto& tested) {
                           return absl::StrCat(tested.param.optimizer,
                                               v1::Mode_Name(tested.param.mode).substr(5));
                         });

TEST_P(ConstrainedVariables, HaveTheSameBitsOnOneServerAndOnThree) {
  const ToyJob toy = Job();
  const std::vector<float> values = Train(toy, 1);
  EXPECT_EQ(Train(toy, 3), values);
  EXPECT_GE(values[0], 0);
  for (size_t row = 0; row < 700; ++row) {
    double squares = 0;
    for (size_t i = 0; i < 5; ++i) squares += values[1 + 5 * row + i] * values[1 + 5 * row + i];
    ASSERT_NEAR(squares, 1, 1e-5) << "row " << row;
  }
}

// The update of one server is speculative, and those of the smaller parts of three servers are not.
TEST(NonNegativeVariables, MayBeUpdatedSpeculatively) {
  constexpr int64_t kElements = net::kMinSpeculativeUpdate + 100;
  ToyJob toy(2, {{"a", Shape({kElements}), std::vector<float>(kElements, 0.5f)}});
  toy.variables[0].constraint = Constraint{.non_negative = true};
  const std::vector<float> values = Train(toy, 1);
  EXPECT_THAT(values, Each(testing::Ge(0)));
  EXPECT_EQ(Train(toy, 3), values);
}

TEST(VariablesWithNorms, AreNotUpdatedSpeculatively) {
  constexpr int64_t kElements = net::kMinSpeculativeUpdate + 100;
  ToyJob toy(2, {{"a", Shape({kElements}), std::vector<float>(kElements, 0.5f)}});
  toy.variables[0].constraint = Constraint{.axes = {0}, .max_norm = 2};
  double squares = 0;
  for (const float value : Train(toy, 1)) squares += value * value;
  EXPECT_NEAR(squares, 4, 1e-4);
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
