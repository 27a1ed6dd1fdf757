// Workers that die, leave and return, on a whole cluster. Leases use the test's clock.
#include <optional>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/fake_clock.h"
#include "tests/support/gate.h"
#include "tests/support/in_process_cluster.h"
#include "tests/support/toy_job.h"

namespace cairn::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class MembershipTest : public testing::Test {
 protected:
  // Three workers, three servers with a variable each, a lease of 30 s.
  MembershipTest() : toy_(3, {{"a", {1}, {0}}, {"b", {1}, {0}}, {"c", {1}, {0}}}) {}

  // Every server receives heartbeats of the first incarnation of `workers`; then 20 s pass.
  void Pass20sHearing(const std::vector<int>& workers) {
    for (int worker : workers) {
      for (auto& stub : cluster_.Stubs(TaskName(worker))) {
        v1::HeartbeatRequest request;
        request.set_worker(worker);
        request.set_incarnation(1);
        v1::HeartbeatResponse response;
        EXPECT_EQ(stub->Call(request, &response, std::chrono::seconds(10)), absl::OkStatus());
      }
    }
    clock_.Advance(std::chrono::seconds(20));
    cluster_.Tick();
  }

  FakeClock clock_;
  InProcessCluster cluster_{{.servers = 3, .clock = &clock_}};
  ToyJob toy_;
};

TEST_F(MembershipTest, ARoundClosesWithoutAWorkerThatDied) {
  ToyWorkers workers = StartAll(cluster_, toy_);
  std::vector<absl::StatusOr<client::StepResult>> results(2);
  Thread round("round", [&] {
    InParallel(2, [&](int w) {
      const std::vector<float> gradient(3, w == 0 ? 2.0f : 4.0f);
      results[static_cast<size_t>(w)] = workers[static_cast<size_t>(w)]->Push(gradient);
    });
  });
  Pass20sHearing({0, 1});
  Pass20sHearing({0, 1});
  round.Join();
  for (const auto& result : results) {
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(result->outcome, v1::OUTCOME_ACCEPTED);
  }
  EXPECT_THAT(workers[0]->Values(), ElementsAre(-3, -3, -3));

  const auto after_its_death = workers[2]->Push(std::vector<float>{8, 8, 8});
  EXPECT_EQ(after_its_death.status().code(), absl::StatusCode::kAborted);
  EXPECT_THAT(std::string(after_its_death.status().message()),
              HasSubstr("does not know this worker any more"));
}

// The worker's gradient has reached ps/0 and ps/2 when it dies, and counts on no server.
TEST_F(MembershipTest, AWorkerThatDiesInTheMiddleOfItsPushCountsNowhere) {
  ToyWorkers workers = StartAll(cluster_, toy_);
  Gate dead;
  cluster_.link("worker/2", 1).TapClientFrames([&](const v1::ClientHeader& header) {
    if (!header.has_end()) return Fate::kDeliver;
    for (int server = 0; server < 3; ++server) cluster_.link("worker/2", server).SetReachable(false);
    dead.Open();
    return Fate::kBreakBefore;
  });
  std::vector<absl::StatusOr<client::StepResult>> results(3);
  Thread round("round", [&] {
    InParallel(3, [&](int w) {
      const std::vector<float> gradient(3, static_cast<float>(2 << w));
      results[static_cast<size_t>(w)] = workers[static_cast<size_t>(w)]->Push(gradient);
    });
  });
  ASSERT_TRUE(dead.Wait());
  Pass20sHearing({0, 1});
  Pass20sHearing({0, 1});
  workers[2]->client().Interrupt(absl::CancelledError("the test has seen enough"));
  round.Join();
  EXPECT_EQ(results[2].status().code(), absl::StatusCode::kCancelled);
  for (int w : {0, 1}) {
    ASSERT_TRUE(results[static_cast<size_t>(w)].ok()) << results[static_cast<size_t>(w)].status();
    EXPECT_THAT(workers[static_cast<size_t>(w)]->Values(), ElementsAre(-3, -3, -3));
  }
  for (int w : {0, 1}) workers[static_cast<size_t>(w)]->client().Leave(v1::LEAVE_REASON_FINISHED, "");
}

TEST_F(MembershipTest, ARestartedWorkerPushesAgainInTheOpenRound) {
  ToyWorkers workers = StartAll(cluster_, toy_);
  std::optional<absl::StatusOr<client::StepResult>> old_life;
  Thread first("first", [&] { old_life = workers[2]->Push(std::vector<float>{90, 90, 90}); });
  // Its gradient is staged when it starts again.
  std::string waiting_for;
  do {
    v1::HeartbeatRequest request;
    request.set_worker(0);
    request.set_incarnation(1);
    v1::HeartbeatResponse response;
    ASSERT_EQ(cluster_.Stubs("worker/0")[0]->Call(request, &response, std::chrono::seconds(10)),
              absl::OkStatus());
    waiting_for = response.waiting_for();
  } while (waiting_for != "worker/0, worker/1");

  cluster_.server(0)->PushStreamBroke(2, 1);  // as if it was killed
  ToyWorker again(cluster_, toy_, 2);
  ASSERT_EQ(again.client().WaitReady(JobFor(cluster_, toy_)), absl::OkStatus());
  ASSERT_EQ(again.client().Join(), absl::OkStatus());
  first.Join();
  EXPECT_EQ(old_life->status().code(), absl::StatusCode::kAborted)
      << "the worker learns that its gradient is refused";

  InParallel(3, [&](int w) {
    ToyWorker& worker = w == 2 ? again : *workers[static_cast<size_t>(w)];
    EXPECT_EQ(worker.Push(std::vector<float>(3, static_cast<float>(3 << w)))->outcome, v1::OUTCOME_ACCEPTED);
  });
  EXPECT_THAT(again.Values(), ElementsAre(-7, -7, -7));
}

TEST_F(MembershipTest, AWorkerThatLeavesIsNotWaitedFor) {
  ToyWorkers workers = StartAll(cluster_, toy_);
  workers[1]->client().Leave(v1::LEAVE_REASON_STOPPED, "");
  InParallel(2, [&](int w) {
    EXPECT_EQ(workers[w == 0 ? 0 : 2]->Push(std::vector<float>{1, 2, 3})->outcome, v1::OUTCOME_ACCEPTED);
  });
  EXPECT_THAT(workers[2]->Values(), ElementsAre(-1, -2, -3));
}

TEST_F(MembershipTest, AWorkerThatFailsEndsTheJobForAllWithItsMessage) {
  ToyWorkers workers = StartAll(cluster_, toy_);
  absl::StatusOr<client::StepResult> result;
  Thread waiting("waiting", [&] { result = workers[0]->Push(std::vector<float>{1, 1, 1}); });
  workers[1]->client().Leave(v1::LEAVE_REASON_FAILED, "the disk is full");
  waiting.Join();
  EXPECT_EQ(result.status().code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(result.status().message()), HasSubstr("worker/1 failed: the disk is full"));
}

TEST_F(MembershipTest, TheChiefLearnsThatAllOthersHaveLeft) {
  ToyWorkers workers = StartAll(cluster_, toy_);
  workers[1]->client().Leave(v1::LEAVE_REASON_FINISHED, "");
  Pass20sHearing({0});
  Pass20sHearing({0});  // worker 2's lease has run out
  EXPECT_EQ(workers[0]->client().control().WaitForOthers(std::chrono::seconds(5)), absl::OkStatus());
}

}  // namespace
}  // namespace cairn::test
