// The promises of bounded staleness, each tested on a whole cluster.
#include <array>
#include <atomic>
#include <optional>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/fake_clock.h"
#include "tests/support/gate.h"
#include "tests/support/in_process_cluster.h"
#include "tests/support/toy_job.h"

namespace cairn::test {
namespace {

using testing::Each;

// Each of two servers has a variable.
ToyJob SspJob(int workers, int64_t max_staleness) {
  ToyJob toy(workers, {{"a", {1}, {0}}, {"b", {1}, {0}}});
  toy.job.set_mode(v1::MODE_SSP);
  toy.job.set_max_staleness(max_staleness);
  return toy;
}

// Two workers. The first one may be one push ahead, and has made two.
class SspCluster : public testing::Test {
 protected:
  void Block() {
    workers_ = StartAll(cluster_, SspJob(2, /*max_staleness=*/1));
    ASSERT_TRUE(workers_[0]->Push(std::vector<float>{1, 1}).ok());
    EXPECT_EQ(WaitingFor(), "") << "one ahead is not too far";
    blocked_ = Thread("blocked", [this] { answer_ = workers_[0]->Push(std::vector<float>{2, 2}); });
    while (WaitingFor() != "worker/1") {
    }
  }
  std::string WaitingFor() {
    v1::HeartbeatRequest request;
    request.set_worker(0);
    request.set_incarnation(1);
    v1::HeartbeatResponse response;
    EXPECT_EQ(cluster_.Stubs("worker/0")[0]->Call(request, &response, std::chrono::seconds(10)),
              absl::OkStatus());
    return response.waiting_for();
  }
  // The slow worker pushes, and the fast one continues with the resulting values.
  void Unblock() {
    ASSERT_EQ(workers_[1]->Push(std::vector<float>{4, 4})->outcome, v1::OUTCOME_ACCEPTED);
    blocked_.Join();
    ASSERT_TRUE(answer_.has_value() && answer_->ok());
    EXPECT_EQ((*answer_)->outcome, v1::OUTCOME_ACCEPTED);
    EXPECT_THAT(workers_[0]->Values(), Each(-7));
    EXPECT_EQ(workers_[0]->client().steps().version(), 3);
    EXPECT_EQ(WaitingFor(), "");
  }

  FakeClock clock_;
  InProcessCluster cluster_{{.servers = 2, .clock = &clock_}};
  ToyWorkers workers_;
  std::optional<absl::StatusOr<client::StepResult>> answer_;
  Thread blocked_;
};

TEST_F(SspCluster, AWorkerTooFarAheadBlocksAndOthersSeeItsPush) {
  Block();
  ASSERT_EQ(workers_[1]->client().steps().Pull(), absl::OkStatus());
  EXPECT_THAT(workers_[1]->Values(), Each(-3));
  Unblock();
  const v1::Counters counters = workers_[0]->client().control().ServerCounters().value();
  EXPECT_EQ(counters.accepted(), 3);
  ASSERT_EQ(counters.staleness_histogram_size(), 16);
  EXPECT_EQ(counters.staleness_histogram(0), 3) << "the slow one had pulled meanwhile";
}

TEST_F(SspCluster, ARepeatedPushDoesNotPassTheBound) {
  Block();
  cluster_.link("worker/0", 0).Break();
  cluster_.link("worker/0", 1).Break();
  while (workers_[1]->client().control().ServerCounters()->duplicate() == 0) {
  }
  EXPECT_EQ(WaitingFor(), "worker/1");
  Unblock();
  EXPECT_TRUE((*answer_)->duplicate);
}

TEST_F(SspCluster, AServerWithoutALinkToPs0StillDefersTheAnswer) {
  Block();
  cluster_.BreakFollower(1);
  Unblock();
}

TEST_F(SspCluster, ADeadWorkerDoesNotCountForTheMinimum) {
  Block();
  clock_.Advance(std::chrono::seconds(20));
  EXPECT_EQ(WaitingFor(), "worker/1");  // worker/0 renews its lease with this call
  clock_.Advance(std::chrono::seconds(20));
  cluster_.Tick();
  blocked_.Join();
  ASSERT_TRUE(answer_.has_value() && answer_->ok());
  EXPECT_EQ((*answer_)->outcome, v1::OUTCOME_ACCEPTED);
  EXPECT_THAT(workers_[0]->Values(), Each(-3));
  ASSERT_TRUE(workers_[0]->Push(std::vector<float>{1, 1}).ok()) << "it waits for no worker";
}

TEST_F(SspCluster, ARestartedWorkerBeginsAtTheClockOfTheSlowest) {
  Block();
  Unblock();
  EXPECT_EQ(workers_[1]->client().start().clock, 0);
  ASSERT_TRUE(workers_[1]->Push(std::vector<float>{1, 1}).ok());
  cluster_.server(0)->PushStreamBroke(1, 1);  // it was killed
  ToyWorker again(cluster_, SspJob(2, 1), 1);
  ASSERT_EQ(again.client().WaitReady(JobFor(cluster_, SspJob(2, 1))), absl::OkStatus());
  ASSERT_EQ(again.client().Join(), absl::OkStatus());
  EXPECT_EQ(again.client().start().clock, 2);
}

TEST(Ssp, AtZeroAllWorkersContinueFromTheSameValues) {
  InProcessCluster cluster({.servers = 2, .longest_delay = std::chrono::microseconds(200)});
  ToyWorkers workers = StartAll(cluster, SspJob(3, 0));
  for (int round = 1; round <= 10; ++round) {
    for (const auto& result : PushAll(workers, {{1, 1}, {2, 2}, {4, 4}})) ASSERT_TRUE(result.ok());
    for (const auto& worker : workers) {
      EXPECT_EQ(worker->client().steps().version(), 3 * round);
      EXPECT_THAT(worker->Values(), Each(-7 * round));
    }
  }
}

// Worker w adds 2^(6 w) with each of its pushes, so the values show how many pushes of each worker they
// contain.
TEST(Ssp, TheBoundIsNeverExceededAndReadsContainAllPromisedPushes) {
  constexpr int kWorkers = 4, kSteps = 40;
  for (const int64_t bound : {0, 1, 3}) {
    InProcessCluster cluster({.servers = 2,
                              .longest_delay = std::chrono::microseconds(300),
                              .seed = static_cast<uint64_t>(bound)});
    ToyWorkers workers = StartAll(cluster, SspJob(kWorkers, bound));
    std::array<std::atomic<int64_t>, kWorkers> begun{};
    InParallel(kWorkers, [&](int w) {
      ToyWorker& worker = *workers[static_cast<size_t>(w)];
      const std::vector<float> gradient(2, -static_cast<float>(1 << (6 * w)));
      for (int64_t clock = 1; clock <= kSteps; ++clock) {
        ++begun[static_cast<size_t>(w)];
        const auto result = worker.Push(gradient);
        ASSERT_TRUE(result.ok()) << result.status();
        ASSERT_EQ(worker.Values()[0], worker.Values()[1]) << "of one version on both servers";
        const auto counts = static_cast<int64_t>(worker.Values()[0]);
        for (int other = 0; other < kWorkers; ++other) {
          ASSERT_GE(begun[static_cast<size_t>(other)], clock - bound) << "worker " << w << " of " << other;
          const int64_t seen = (counts >> (6 * other)) & 63;
          ASSERT_GE(seen, other == w ? clock : clock - bound) << "worker " << w << " of " << other;
        }
      }
    });
    ASSERT_EQ(workers[0]->client().steps().Pull(), absl::OkStatus());
    EXPECT_EQ(workers[0]->client().steps().version(), kWorkers * kSteps);
  }
}

// Zhang et al. 2016: the rate divided by the staleness, 0 counting as 1.
TEST(StalenessAwareRate, AnUpdateMovesByTheRateOverItsStaleness) {
  for (const v1::Mode mode : {v1::MODE_ASYNC, v1::MODE_SSP}) {
    InProcessCluster cluster({.servers = 2});
    ToyJob toy = SspJob(2, 100);
    toy.job.set_mode(mode);
    toy.job.set_staleness_aware_learning_rate(true);
    ToyWorkers workers = StartAll(cluster, toy);
    const std::vector<float> one = {1, 1};
    float expected = 0;
    for (const auto& [staleness, moved] :
         std::vector<std::pair<int, float>>{{0, 1}, {1, 1}, {2, 0.5f}, {4, 0.25f}, {8, 0.125f}}) {
      ASSERT_EQ(workers[1]->client().steps().Pull(), absl::OkStatus());
      for (int i = 0; i < staleness; ++i) ASSERT_EQ(workers[0]->Push(one)->staleness, i == 0 ? 1 : 0);
      EXPECT_EQ(workers[1]->Push(one)->staleness, staleness);
      expected -= static_cast<float>(staleness) + moved;
      EXPECT_THAT(workers[1]->Values(), Each(expected)) << "staleness " << staleness;
    }
  }
}

TEST(StalenessAwareRate, IsOffUnlessAskedFor) {
  InProcessCluster cluster;
  ToyWorkers workers = StartAll(cluster, SspJob(2, 100));
  const std::vector<float> one = {1, 1};
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(workers[0]->Push(one).ok());
  EXPECT_EQ(workers[1]->Push(one)->staleness, 4);
  EXPECT_THAT(workers[1]->Values(), Each(-5));
}

TEST(Ssp, AJobWithoutABoundIsRefused) {
  InProcessCluster cluster;
  ToyJob toy = SspJob(1, 0);
  toy.job.clear_max_staleness();
  ToyWorker chief(cluster, toy, 0);
  client::FirstValues first(toy.initial);
  const absl::Status status = chief.client().Initialise(JobFor(cluster, toy), first);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), testing::HasSubstr("max_staleness is missing"));
}

}  // namespace
}  // namespace cairn::test
