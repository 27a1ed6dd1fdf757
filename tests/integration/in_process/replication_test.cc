// Shards with a live backup on another server: an answered push is never lost with one server.
#include <atomic>
#include <chrono>
#include <cmath>
#include <numeric>
#include <thread>

#include "client/job_end.h"
#include "common/net/wire/update_chunk.h"
#include "common/system/thread.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/toy_job.h"

namespace cairn::test {
namespace {

// A variable of `elements` for each server.
ToyJob Replicated(int workers, int servers, v1::Mode mode, int64_t elements = 4) {
  std::vector<ToyVariable> variables;
  for (int i = 0; i < servers; ++i) {
    variables.push_back(
        {absl::StrCat("v", i), Shape({elements}), std::vector<float>(static_cast<size_t>(elements), 0)});
  }
  ToyJob toy(workers, std::move(variables));
  toy.job.set_mode(mode);
  toy.job.set_ps_replication(1);
  if (mode == v1::MODE_SSP) toy.job.set_max_staleness(2);
  return toy;
}

std::vector<float> Ones(const ToyJob& toy) {
  return std::vector<float>(toy.initial.size(), -1.0f);  // at rate 1 each update adds one
}

// Waits until `holds` returns true, within a generous limit.
template <typename Holds>
void Await(Holds holds) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (!holds()) {
    ASSERT_LT(std::chrono::steady_clock::now(), deadline) << "it did not come to it";
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
}

// Every worker makes `steps` pushes at its own pace; `at(worker, step)` runs before each.
template <typename At>
void TrainEach(ToyWorkers& workers, const ToyJob& toy, int steps, At at) {
  InParallel(static_cast<int>(workers.size()), [&](int worker) {
    for (int step = 0; step < steps; ++step) {
      at(worker, step);
      const auto result = workers[static_cast<size_t>(worker)]->Push(Ones(toy));
      ASSERT_EQ(result.status(), absl::OkStatus()) << "worker " << worker << ", step " << step;
    }
  });
}

struct Case {
  v1::Mode mode;
  int servers;
  int killed;
};

std::string NameOf(const testing::TestParamInfo<Case>& info) {
  return absl::StrCat(v1::Mode_Name(info.param.mode).substr(5), "_ps", info.param.killed, "_of_",
                      info.param.servers);
}

class Replication : public testing::TestWithParam<Case> {};

TEST_P(Replication, AKilledServerLosesNoUpdate) {
  constexpr int kWorkers = 2, kSteps = 60;
  InProcessCluster cluster({.servers = GetParam().servers, .longest_delay = std::chrono::microseconds(300)});
  const ToyJob toy = Replicated(kWorkers, GetParam().servers, GetParam().mode);
  ToyWorkers workers = StartAll(cluster, toy);
  TrainEach(workers, toy, kSteps, [&](int worker, int step) {
    if (worker == 0 && step == kSteps / 2) cluster.Kill(GetParam().killed);
  });
  const int updates = GetParam().mode == v1::MODE_SYNC ? kSteps : kSteps * kWorkers;
  ASSERT_EQ(workers[0]->client().steps().Pull(), absl::OkStatus());
  EXPECT_EQ(workers[0]->Values(), std::vector<float>(toy.initial.size(), static_cast<float>(updates)));
  EXPECT_EQ(workers[0]->client().control().ServerCounters().value().accepted(), kSteps * kWorkers);
}

// Speculative updates are made and sent while gradients arrive; values of an update that was not decided are
// void.
TEST(ReplicationOfLargeValues, AKilledServerLosesNoUpdate) {
  constexpr int kWorkers = 2, kSteps = 12;
  InProcessCluster cluster({.servers = 2, .longest_delay = std::chrono::microseconds(300)});
  const ToyJob toy = Replicated(kWorkers, 2, v1::MODE_SYNC, net::kMinSpeculativeUpdate);
  ToyWorkers workers = StartAll(cluster, toy);
  TrainEach(workers, toy, kSteps, [&](int worker, int step) {
    if (worker == 0 && step == kSteps / 2) cluster.Kill(1);
  });
  EXPECT_EQ(workers[0]->Values(), std::vector<float>(toy.initial.size(), static_cast<float>(kSteps)));
  EXPECT_EQ(workers[0]->client().control().ServerCounters().value().accepted(), kSteps * kWorkers);
}

struct NormsCase {
  v1::Mode mode;
  const char* optimizer;
  bool constrained = false;
};

class ReplicationOfNorms : public testing::TestWithParam<NormsCase> {
 protected:
  static constexpr int kWorkers = 2, kSteps = 30;
  // The values at the end. `killed`: the server to kill, -1 for none.
  static std::vector<float> Trained(int killed) {
    InProcessCluster cluster({.servers = 2, .longest_delay = std::chrono::microseconds(300)});
    ToyJob toy = Replicated(kWorkers, 2, GetParam().mode);
    toy.job.mutable_optimizer()->set_name(GetParam().optimizer);
    auto& numbers = *toy.job.mutable_optimizer()->mutable_hyperparameters();
    numbers["learning_rate"] = 0.1;
    numbers["global_clipnorm"] = 0.7;
    if (GetParam().constrained) {
      toy.variables[0].constraint = Constraint{.axes = {0}, .max_norm = 0.2f};
      toy.variables[1].constraint = Constraint{.non_negative = true};
    }
    ToyWorkers workers = StartAll(cluster, toy);
    std::vector<float> gradient(toy.initial.size());
    std::iota(gradient.begin(), gradient.end(), -2.5f);
    std::atomic<int> pushed = 0;
    Thread killer("killer", [&] {  // at any moment of an update
      while (pushed < kSteps) std::this_thread::yield();
      if (killed >= 0) cluster.Kill(killed);
    });
    InParallel(kWorkers, [&](int worker) {
      for (int step = 0; step < kSteps; ++step) {
        ++pushed;
        ASSERT_EQ(workers[static_cast<size_t>(worker)]->Push(gradient).status(), absl::OkStatus());
      }
    });
    killer.Join();
    EXPECT_EQ(workers[0]->client().steps().Pull(), absl::OkStatus());
    EXPECT_EQ(workers[0]->client().control().ServerCounters().value().accepted(), kSteps * kWorkers);
    return workers[0]->Values();
  }
};

TEST_P(ReplicationOfNorms, AKilledServerLosesNoUpdate) {
  const std::vector<float> undisturbed = Trained(-1);
  if (GetParam().constrained) {
    EXPECT_NEAR(
        std::hypot(std::hypot(undisturbed[0], undisturbed[1]), std::hypot(undisturbed[2], undisturbed[3])),
        0.2, 1e-6);
    EXPECT_THAT(std::vector<float>(undisturbed.begin() + 4, undisturbed.end()),
                testing::Each(testing::Ge(0)));
  }
  for (int killed : {0, 1}) EXPECT_EQ(Trained(killed), undisturbed) << "without ps/" << killed;
}

INSTANTIATE_TEST_SUITE_P(Modes, ReplicationOfNorms,
                         testing::Values(NormsCase{v1::MODE_SYNC, "SGD"}, NormsCase{v1::MODE_SYNC, "Lamb"},
                                         NormsCase{v1::MODE_ASYNC, "SGD"}, NormsCase{v1::MODE_ASYNC, "Lamb"},
                                         NormsCase{v1::MODE_SSP, "Lamb"},
                                         NormsCase{v1::MODE_SYNC, "SGD", true},
                                         NormsCase{v1::MODE_ASYNC, "Lamb", true}),
                         [](const auto& each) {
                           return absl::StrCat(v1::Mode_Name(each.param.mode).substr(5), "_",
                                               each.param.optimizer,
                                               each.param.constrained ? "_Constrained" : "");
                         });

TEST_P(Replication, ARestartedServerBecomesTheBackupAndThenTheOtherMayBeKilled) {
  constexpr int kWorkers = 2, kSteps = 20;
  InProcessCluster cluster({.servers = GetParam().servers, .longest_delay = std::chrono::microseconds(100)});
  const ToyJob toy = Replicated(kWorkers, GetParam().servers, GetParam().mode);
  ToyWorkers workers = StartAll(cluster, toy);
  const int killed = GetParam().killed;
  const int other = (killed + 1) % GetParam().servers;
  const auto train = [&] { TrainEach(workers, toy, kSteps, [](int, int) {}); };
  train();
  cluster.Kill(killed);
  train();
  cluster.Restart(killed);
  const int before = (killed + GetParam().servers - 1) % GetParam().servers;
  Await([&] {  // its own shard, served by the other server, and the backup of the shard before it
    return cluster.server(killed)->hosted_job().backup_in_sync() &&
           cluster.backup_of(before)->hosted_job().backup_in_sync();
  });
  train();
  cluster.Kill(other);
  train();
  const int updates = 4 * kSteps * (GetParam().mode == v1::MODE_SYNC ? 1 : kWorkers);
  ASSERT_EQ(workers[0]->client().steps().Pull(), absl::OkStatus());
  EXPECT_EQ(workers[0]->Values(), std::vector<float>(toy.initial.size(), static_cast<float>(updates)));
}

INSTANTIATE_TEST_SUITE_P(Modes, Replication,
                         testing::Values(Case{v1::MODE_SYNC, 2, 0}, Case{v1::MODE_SYNC, 2, 1},
                                         Case{v1::MODE_SYNC, 3, 0}, Case{v1::MODE_SYNC, 3, 1},
                                         Case{v1::MODE_ASYNC, 2, 0}, Case{v1::MODE_ASYNC, 2, 1},
                                         Case{v1::MODE_SSP, 2, 0}, Case{v1::MODE_SSP, 2, 1}),
                         NameOf);

// A server whose shard has been served by another one for long is unlikely to return now.
TEST(EndOfReplicatedJob, WaitsForALostServerOnlyForTheRestOfItsTimeAndNamesIt) {
  InProcessCluster cluster({.servers = 2});
  const ToyJob toy = Replicated(1, 2, v1::MODE_SYNC);
  ToyWorkers workers = StartAll(cluster, toy);
  cluster.Kill(1);
  ASSERT_EQ(workers[0]->Push(Ones(toy)).status(), absl::OkStatus());
  Mutex mutex;
  std::string said;
  client::ConnectionOptions options = {.task = "worker/0",
                                       .stub_factory = cluster.StubFactoryFor("worker/0")};
  options.say = [&](const std::string& text) {
    MutexLock lock(mutex);
    said += text;
  };
  const auto connection = client::Connection::Open(cluster.Stubs("worker/0"), options).value();
  ASSERT_TRUE(connection->away(1));
  std::this_thread::sleep_for(std::chrono::seconds(3));  // of the ten that a lost server has to return
  const auto began = std::chrono::steady_clock::now();
  EXPECT_EQ(client::EndServers(*connection), absl::OkStatus());
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::milliseconds(9500));
  MutexLock lock(mutex);
  EXPECT_THAT(said, testing::HasSubstr("ps/1 at host1:2222 was lost before it could be notified"));
}

}  // namespace
}  // namespace cairn::test
