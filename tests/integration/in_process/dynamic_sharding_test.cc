// Dynamic data sharding: each example of each epoch is used once, although workers join and leave.
//
// Every variable has an element for each example of each epoch, and a push adds to those of its work item. So
// the values show how often each example was used, on each server.
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/system/thread.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/in_process_cluster.h"
#include "tests/support/snapshot_memory.h"
#include "tests/support/toy_job.h"

namespace cairn::test {
namespace {

using testing::Each;
using testing::HasSubstr;

constexpr int64_t kExamples = 45, kBatch = 4, kEpochs = 2;  // the last batch of an epoch has one

ToyJob Job(v1::Mode mode, int workers, bool elastic) {
  const int64_t size = kExamples * kEpochs;
  const std::vector<float> zeros(static_cast<size_t>(size));
  ToyJob toy(workers, {{"left", {size}, zeros}, {"right", {size}, zeros}});  // one on each of two servers
  toy.job.set_mode(mode);
  if (mode == v1::MODE_SSP) toy.job.set_max_staleness(1);
  toy.job.set_replicas_to_aggregate(0);
  toy.job.set_dynamic_sharding(true);
  toy.job.set_num_examples(kExamples);
  toy.job.set_batch_size(kBatch);
  toy.job.set_epochs(kEpochs);
  toy.job.set_elastic(elastic);
  toy.job.set_restorable(true);
  return toy;
}

// A worker that requests work items, computes them, and recovers from failures.
class Hand {
 public:
  Hand(InProcessCluster& cluster, const ToyJob& toy, int worker, client::StateSource* chiefs = nullptr)
      : toy_(toy), job_(JobFor(cluster, toy)), chiefs_(chiefs), worker_(cluster, toy, worker) {}

  client::TrainingClient& client() { return worker_.client(); }

  absl::Status Enter() {
    if (chiefs_ != nullptr) {
      if (absl::Status status = client().Initialise(job_, *chiefs_); !status.ok()) return status;
    }
    if (absl::Status status = client().WaitReady(job_); !status.ok()) return status;
    return client().Join();
  }
  // Computes one work item. False: there are no more.
  absl::StatusOr<bool> Step() {
    if (client().steps().finished()) return false;
    if (client().steps().work().work_items().empty()) {
      if (absl::Status status = client().steps().AwaitWork(); !status.ok()) return status;
      return !client().steps().finished();
    }
    Begin();
    const auto result = step_->Finish();
    if (!result.ok()) return result.status();
    return true;
  }
  void Begin() {
    const v1::WorkItem work_item = client().steps().work().work_items(0);
    gradient_.assign(static_cast<size_t>(toy_.variables[0].shape.num_elements() * 2), 0);
    const auto begin = static_cast<size_t>(work_item.epoch() * kExamples + work_item.first());
    for (size_t i = begin; i < begin + static_cast<size_t>(work_item.count()); ++i) {
      gradient_[i] = gradient_[i + gradient_.size() / 2] = of_example(static_cast<int64_t>(i));
    }
    step_ = &client().steps().BeginStep(gradient_, work_item.count(), static_cast<int64_t>(begin));
    step_->Announce(1);
    step_->Announce(0);
  }
  // The step that Begin() has begun.
  client::Step& step() { return *step_; }
  // Works to the end, or until `enough` returns true after a step.
  void Work(const std::function<bool(int steps)>& enough = nullptr) {
    int recoveries = 0;
    for (int steps = 1;; ++steps) {
      const auto more = Step();
      if (more.ok() && !*more) return;
      if (more.ok() && enough && enough(steps)) return;
      if (more.ok()) continue;
      ASSERT_TRUE(client().CanReconnectAfter(more.status())) << more.status();
      ASSERT_LT(++recoveries, 20) << more.status();
      ASSERT_EQ(client().Reconnect(), absl::OkStatus());
      ASSERT_EQ(Enter(), absl::OkStatus());
    }
  }
  void Leave() { client().Leave(v1::LEAVE_REASON_STOPPED, ""); }
  std::vector<float> Values() {
    EXPECT_EQ(client().steps().Pull(), absl::OkStatus());
    return worker_.Values();
  }

  std::function<float(int64_t)> of_example = [](int64_t) { return -1.0f; };

 private:
  const ToyJob& toy_;
  const v1::Job job_;
  client::StateSource* const chiefs_;
  ToyWorker worker_;
  std::vector<float> gradient_;
  client::Step* step_ = nullptr;
};

// The missed and repeated examples in the values of both servers are those that the servers report.
void ExpectDeviations(Hand& chief, bool rounds) {
  int64_t missed = 0, repeated = 0;
  for (float value : chief.Values()) {
    missed += value == 0 ? 1 : 0;
    if (!rounds) repeated += value > 1 ? static_cast<int64_t>(value) - 1 : 0;
  }
  const auto used = chief.client().control().UsedData();
  ASSERT_TRUE(used.ok()) << used.status();
  EXPECT_EQ(used->missed(), missed);
  EXPECT_EQ(used->repeated(), repeated);
}

// Each example of every epoch was used once. In rounds an example counts as its fraction of the mean, so the
// counter shows repeats.
void ExpectEachOnce(Hand& chief, bool rounds) {
  for (float value : chief.Values()) ASSERT_GT(value, 0);
  if (!rounds) {
    EXPECT_THAT(chief.Values(), Each(1));
  }
  EXPECT_EQ(chief.client().control().ServerCounters()->examples(), kExamples * kEpochs);
  ExpectDeviations(chief, rounds);
}

class DynamicSharding : public testing::TestWithParam<v1::Mode> {
 protected:
  bool rounds() const { return GetParam() == v1::MODE_SYNC; }
};
INSTANTIATE_TEST_SUITE_P(Mode, DynamicSharding, testing::Values(v1::MODE_SYNC, v1::MODE_ASYNC, v1::MODE_SSP),
                         [](const auto& mode) { return v1::Mode_Name(mode.param).substr(5); });

TEST_P(DynamicSharding, UsesEachExampleOnce) {
  InProcessCluster cluster({.servers = 2, .longest_delay = std::chrono::microseconds(200)});
  const ToyJob toy = Job(GetParam(), 3, /*elastic=*/false);
  client::FirstValues first(toy.initial);
  Hand chief(cluster, toy, 0, &first), second(cluster, toy, 1), third(cluster, toy, 2);
  InParallel(3, [&](int worker) {
    Hand& hand = worker == 0 ? chief : worker == 1 ? second : third;
    ASSERT_EQ(hand.Enter(), absl::OkStatus());
    hand.Work();
    if (worker != 0) hand.Leave();
  });
  ExpectEachOnce(chief, rounds());
}

// One worker, then four, then two. One of the two that leave dies with its work items.
TEST_P(DynamicSharding, UsesEachExampleOnceWhileWorkersComeAndGo) {
  InProcessCluster cluster({.servers = 2, .longest_delay = std::chrono::microseconds(200)});
  ToyJob toy = Job(GetParam(), 1, /*elastic=*/true);
  toy.job.set_lease_seconds(1);
  client::FirstValues first(toy.initial);
  Hand chief(cluster, toy, 0, &first), stays(cluster, toy, 7), leaves(cluster, toy, 3);
  auto dies = std::make_unique<Hand>(cluster, toy, 5);
  ASSERT_EQ(chief.Enter(), absl::OkStatus());
  chief.Work([](int steps) { return steps == 2; });
  EXPECT_EQ(chief.client().steps().work().members(), 1);
  int most = 0;
  // They step in the order in which they have joined, because a round waits for all members.
  for (Hand* hand : {&stays, &leaves, dies.get()}) {
    ASSERT_EQ(hand->Enter(), absl::OkStatus());
    most = std::max(most, hand->client().steps().work().members());
  }
  EXPECT_EQ(most, 4);
  InParallel(4, [&](int worker) {
    if (worker == 0) chief.Work();
    if (worker == 1) stays.Work();
    if (worker == 2) {
      leaves.Work([](int steps) { return steps == 2; });
      leaves.Leave();
    }
    if (worker == 3) {
      dies->Work([](int steps) { return steps == 1; });
      dies.reset();
    }
  });
  stays.Leave();
  EXPECT_EQ(chief.client().control().WaitForOthers(std::chrono::seconds(10)), absl::OkStatus());
  // On a busy machine other workers may lose their leases too, in asynchronous jobs when a push has reached
  // only one server.
  if (GetParam() == v1::MODE_ASYNC) {
    ExpectDeviations(chief, /*rounds=*/false);
  } else {
    ExpectEachOnce(chief, rounds());
  }
}

// The backup of ps/0's shard knows which worker has which work item.
TEST_P(DynamicSharding, APromotedBackupKnowsTheAssignedWorkItems) {
  for (const int killed : {0, 1}) {
    InProcessCluster cluster({.servers = 2, .longest_delay = std::chrono::microseconds(200)});
    ToyJob toy = Job(GetParam(), 3, /*elastic=*/false);
    toy.job.set_ps_replication(1);
    client::FirstValues first(toy.initial);
    Hand chief(cluster, toy, 0, &first), second(cluster, toy, 1), third(cluster, toy, 2);
    InParallel(3, [&](int worker) {
      Hand& hand = worker == 0 ? chief : worker == 1 ? second : third;
      ASSERT_EQ(hand.Enter(), absl::OkStatus());
      hand.Work([&](int steps) {
        if (worker == 0 && steps == 3) cluster.Kill(killed);
        return false;
      });
    });
    ExpectEachOnce(chief, rounds());
  }
}

// Work items that are open at a snapshot are computed later, by other workers with other servers.
TEST_P(DynamicSharding, ResumesFromASnapshotWithOtherWorkersAndServers) {
  const ToyJob toy = Job(GetParam(), 3, /*elastic=*/false);
  SnapshotMemory memory(toy);
  {
    InProcessCluster cluster({.servers = 2});
    Hand chief(cluster, toy, 0, &memory), second(cluster, toy, 1), third(cluster, toy, 2);
    InParallel(3, [&](int worker) {
      Hand& hand = worker == 0 ? chief : worker == 1 ? second : third;
      ASSERT_EQ(hand.Enter(), absl::OkStatus());
      hand.Work([](int steps) { return steps == 3; });
    });
    memory.Take(chief.client());
  }
  EXPECT_GT(memory.newest().progress.data().next(), 0);
  const ToyJob fewer = Job(GetParam(), 2, /*elastic=*/false);
  InProcessCluster cluster({.servers = 1});
  Hand chief(cluster, fewer, 0, &memory), second(cluster, fewer, 1);
  InParallel(2, [&](int worker) {
    Hand& hand = worker == 0 ? chief : second;
    ASSERT_EQ(hand.Enter(), absl::OkStatus());
    hand.Work();
  });
  ExpectEachOnce(chief, rounds());
}

TEST_P(DynamicSharding, EndsAtOnceIfResumedWithNothingLeft) {
  const ToyJob toy = Job(GetParam(), 1, /*elastic=*/false);
  SnapshotMemory memory(toy);
  {
    InProcessCluster cluster({.servers = 2});
    Hand chief(cluster, toy, 0, &memory);
    ASSERT_EQ(chief.Enter(), absl::OkStatus());
    chief.Work();
    memory.Take(chief.client());
  }
  InProcessCluster cluster({.servers = 2});
  Hand chief(cluster, toy, 0, &memory);
  ASSERT_EQ(chief.Enter(), absl::OkStatus());
  EXPECT_FALSE(*chief.Step());
  ExpectEachOnce(chief, rounds());
}

// The order of arrival does not matter.
TEST(DynamicShardingInRounds, GivesTheSameBitsOnEveryRun) {
  std::vector<std::vector<float>> results;
  for (uint64_t seed : {1, 2}) {
    InProcessCluster cluster({.servers = 2, .longest_delay = std::chrono::microseconds(300), .seed = seed});
    const ToyJob toy = Job(v1::MODE_SYNC, 3, /*elastic=*/false);
    client::FirstValues first(toy.initial);
    std::vector<std::unique_ptr<Hand>> hands;
    for (int worker = 0; worker < 3; ++worker) {
      hands.push_back(std::make_unique<Hand>(cluster, toy, worker, worker == 0 ? &first : nullptr));
      hands.back()->of_example = [](int64_t example) { return 1.0f / static_cast<float>(3 + example); };
    }
    InParallel(3, [&](int worker) {
      Hand& hand = *hands[static_cast<size_t>(seed == 1 ? worker : (worker + 1) % 3)];
      ASSERT_EQ(hand.Enter(), absl::OkStatus());
      hand.Work();
    });
    results.push_back(hands[0]->Values());
  }
  EXPECT_EQ(results[0], results[1]);
}

TEST(DynamicShardingInRounds, ARolledBackJobEndsWithTheSameBits) {
  std::vector<std::vector<float>> results;
  for (const bool disturbed : {false, true}) {
    const ToyJob toy = Job(v1::MODE_SYNC, 2, /*elastic=*/false);
    SnapshotMemory memory(toy);
    InProcessCluster cluster({.servers = 2});
    Hand chief(cluster, toy, 0, &memory), other(cluster, toy, 1);
    chief.of_example =
        other.of_example = [](int64_t example) { return 1.0f / static_cast<float>(3 + example); };
    InParallel(2, [&](int worker) {
      Hand& hand = worker == 0 ? chief : other;
      ASSERT_EQ(hand.Enter(), absl::OkStatus());
      hand.Work([&](int steps) {
        if (worker == 0 && steps == 2) memory.Take(hand.client());
        if (worker == 0 && steps == 4 && disturbed) cluster.Restart(1);
        return false;
      });
    });
    results.push_back(chief.Values());
    EXPECT_EQ(chief.client().control().ServerCounters()->examples(), kExamples * kEpochs);
  }
  EXPECT_EQ(results[0], results[1]);
}

// A worker whose push of its first work item reaches only the server `comes_to` of two, and which then
// leaves.
void TearAPush(InProcessCluster& cluster, const ToyJob& toy, Hand& chief, int comes_to) {
  Hand torn(cluster, toy, 1);
  ASSERT_EQ(torn.Enter(), absl::OkStatus());
  cluster.link("worker/1", 1 - comes_to).SetReachable(false);
  torn.Begin();
  Thread pushes("pushes", [&] { EXPECT_FALSE(torn.step().Finish().ok()); });
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  for (int64_t version = 0; version == 0;) {
    ASSERT_LT(std::chrono::steady_clock::now(), deadline);
    version = chief.client().connection().Describe(comes_to)->version();
  }
  torn.client().Interrupt(absl::CancelledError("torn"));
  pushes.Join();
  cluster.link("worker/1", 1 - comes_to).SetReachable(true);
  torn.Leave();
}

// The push reached ps/1 and not ps/0, which assigns the work item again.
TEST(DynamicShardingAsync, ExamplesThatAPartialPushRepeatsAreCounted) {
  InProcessCluster cluster({.servers = 2});
  const ToyJob toy = Job(v1::MODE_ASYNC, 2, /*elastic=*/false);
  client::FirstValues first(toy.initial);
  Hand chief(cluster, toy, 0, &first);
  ASSERT_EQ(chief.Enter(), absl::OkStatus());
  TearAPush(cluster, toy, chief, /*comes_to=*/1);
  chief.Work();
  EXPECT_EQ(chief.client().control().UsedData()->repeated(), kBatch);
  ExpectDeviations(chief, /*rounds=*/false);
}

TEST(DynamicShardingAsync, ExamplesThatAPartialPushMissesAreCounted) {
  InProcessCluster cluster({.servers = 2});
  const ToyJob toy = Job(v1::MODE_ASYNC, 2, /*elastic=*/false);
  client::FirstValues first(toy.initial);
  Hand chief(cluster, toy, 0, &first);
  ASSERT_EQ(chief.Enter(), absl::OkStatus());
  TearAPush(cluster, toy, chief, /*comes_to=*/0);
  chief.Work();
  EXPECT_EQ(chief.client().control().UsedData()->missed(), kBatch);
  ExpectDeviations(chief, /*rounds=*/false);
}

// Each server takes its snapshot at its own moment. A push that only one server had by then is repeated or
// missed.
TEST(DynamicShardingAsync, PushesThatASnapshotSplitsAreCounted) {
  for (int comes_to : {0, 1}) {
    const ToyJob toy = Job(v1::MODE_ASYNC, 2, /*elastic=*/false);
    SnapshotMemory memory(toy);
    {
      InProcessCluster cluster({.servers = 2});
      Hand chief(cluster, toy, 0, &memory);
      ASSERT_EQ(chief.Enter(), absl::OkStatus());
      TearAPush(cluster, toy, chief, comes_to);
      memory.Take(chief.client());
    }
    InProcessCluster cluster({.servers = 2});
    Hand chief(cluster, toy, 0, &memory);
    ASSERT_EQ(chief.Enter(), absl::OkStatus());
    chief.Work();
    EXPECT_EQ(chief.client().control().UsedData()->missed(), comes_to == 0 ? kBatch : 0);
    EXPECT_EQ(chief.client().control().UsedData()->repeated(), comes_to == 1 ? kBatch : 0);
    ExpectDeviations(chief, /*rounds=*/false);
  }
}

TEST(Elastic, TrainingPausesBelowTheMinimumOfWorkers) {
  InProcessCluster cluster;
  ToyJob toy = Job(v1::MODE_SYNC, 1, /*elastic=*/true);
  toy.job.set_min_workers(2);
  client::FirstValues first(toy.initial);
  Hand chief(cluster, toy, 0, &first), other(cluster, toy, 4);
  ASSERT_EQ(chief.Enter(), absl::OkStatus());
  v1::WaitRequest request;
  request.set_condition(v1::CONDITION_WORK);
  v1::WaitResponse response;
  ASSERT_EQ(chief.client().connection().stub(0).Call(request, &response, std::chrono::seconds(10)),
            absl::OkStatus());
  EXPECT_FALSE(response.holds());
  EXPECT_EQ(response.missing(), "workers: 1 of at least 2 have joined");
  ASSERT_EQ(other.Enter(), absl::OkStatus());
  EXPECT_EQ(chief.client().steps().AwaitWork(), absl::OkStatus());
  EXPECT_EQ(chief.client().steps().work().work_items_size(), 2);
}

TEST(Elastic, AWorkerBeyondTheMaximumWaits) {
  InProcessCluster cluster;
  ToyJob toy = Job(v1::MODE_ASYNC, 1, /*elastic=*/true);
  toy.job.set_max_workers(2);
  client::FirstValues first(toy.initial);
  Hand chief(cluster, toy, 0, &first), second(cluster, toy, 1);
  ASSERT_EQ(chief.Enter(), absl::OkStatus());
  ASSERT_EQ(second.Enter(), absl::OkStatus());
  ToyJob hasty = toy;
  hasty.step_timeout = std::chrono::milliseconds(10);
  Hand refused(cluster, hasty, 2);
  const absl::Status full = refused.Enter();
  EXPECT_EQ(full.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(full.message()),
              HasSubstr("worker/2: the job already has its 2 workers (--max_workers)"));
  Hand third(cluster, toy, 2);
  Thread waits("waits", [&] { EXPECT_EQ(third.Enter(), absl::OkStatus()); });
  second.Leave();
  waits.Join();
}

TEST(Elastic, OnlyTheChiefThatTheServersKnowIsAccepted) {
  InProcessCluster cluster;
  ToyJob toy = Job(v1::MODE_ASYNC, 1, /*elastic=*/true);
  toy.job.set_workers(0, "chief/0");
  client::FirstValues first(toy.initial);
  Hand chief(cluster, toy, 0, &first);
  ASSERT_EQ(chief.client().Initialise(JobFor(cluster, toy), first), absl::OkStatus());
  const ToyJob other = Job(v1::MODE_ASYNC, 1, /*elastic=*/true);
  Hand usurper(cluster, other, 0);
  const absl::Status status = usurper.Enter();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("the chief: worker/0 here, chief/0 on the servers"));
}

TEST(Elastic, JobsThatAreNotElasticRefuseUnlistedWorkers) {
  InProcessCluster cluster;
  const ToyJob toy = Job(v1::MODE_SYNC, 1, /*elastic=*/false);
  client::FirstValues first(toy.initial);
  Hand chief(cluster, toy, 0, &first);
  ASSERT_EQ(chief.Enter(), absl::OkStatus());
  const ToyJob elastic = Job(v1::MODE_SYNC, 1, /*elastic=*/true);
  Hand stranger(cluster, elastic, 3);
  const absl::Status status = stranger.Enter();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("workers may come and go: yes here, no on the servers"));
}

}  // namespace
}  // namespace cairn::test
