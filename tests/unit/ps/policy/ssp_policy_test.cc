#include "ps/policy/ssp_policy.h"

#include <algorithm>
#include <map>
#include <set>

#include "common/core/random.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/effort.h"
#include "tests/unit/ps/policy/events.h"

namespace cairn::ps {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

PolicyConfig Ssp(int workers, int64_t max_staleness) {
  return {.mode = "ssp", .expected_workers = workers, .max_staleness = max_staleness};
}

// Workers that have joined, and which of them may continue. Each pushes from the current version, one
// gradient after another, as soon as it may.
class SspWorkers {
 public:
  SspWorkers(int workers, int64_t max_staleness) : policy_(Ssp(workers, max_staleness)) {
    for (int worker = 0; worker < workers; ++worker) policy_.OnJoin(worker, 1);
  }
  // Advances all workers clock by clock, so that no answer is deferred before its worker's last push.
  void BringTo(const std::vector<int64_t>& clocks) {
    for (int64_t clock = 1; clock <= *std::max_element(clocks.begin(), clocks.end()); ++clock) {
      for (size_t w = 0; w < clocks.size(); ++w) {
        if (clock <= clocks[w]) Push(static_cast<int>(w));
      }
    }
  }
  void Push(int worker) {
    ASSERT_EQ(deferred_.count(worker), 0u) << "worker " << worker << " may not continue";
    const PushKey key = {worker, 1, policy_.ClockOf(worker) + 1};
    for (const Decision& decision : policy_.OnGradient({key, policy_.version(), 1})) {
      if (const Apply* apply = std::get_if<Apply>(&decision); apply != nullptr && apply->deferred) {
        deferred_.insert(worker);
      }
      if (const Release* release = std::get_if<Release>(&decision)) deferred_.erase(release->key.worker);
    }
  }
  const std::set<int>& deferred() const { return deferred_; }
  const SspPolicy& policy() const { return policy_; }

 private:
  SspPolicy policy_;
  std::set<int> deferred_;
};

// The workers that may not continue at these clocks, by the published rule of Petuum: a worker at clock c
// continues while the slowest is at c - s or later.
std::set<int> DeferredAt(const std::vector<int64_t>& clocks, int64_t max_staleness) {
  SspWorkers workers(static_cast<int>(clocks.size()), max_staleness);
  workers.BringTo(clocks);
  for (size_t w = 0; w < clocks.size(); ++w) {
    EXPECT_EQ(workers.policy().ClockOf(static_cast<int>(w)), clocks[w]);
  }
  return workers.deferred();
}

TEST(SspPolicy, PublishedTableOfWorkersThatMayContinue) {
  EXPECT_THAT(DeferredAt({1, 0}, 0), ElementsAre(0));
  EXPECT_THAT(DeferredAt({1, 0}, 1), IsEmpty());
  EXPECT_THAT(DeferredAt({2, 0}, 1), ElementsAre(0));
  EXPECT_THAT(DeferredAt({3, 0}, 3), IsEmpty());
  EXPECT_THAT(DeferredAt({4, 0}, 3), ElementsAre(0));
  EXPECT_THAT(DeferredAt({5, 3, 4}, 2), IsEmpty());
  EXPECT_THAT(DeferredAt({6, 3, 4}, 2), ElementsAre(0));
}

TEST(SspPolicy, PublishedTableTheFirstContinuesWhenTheSecondReachesFour) {
  SspWorkers workers(3, 2);
  workers.BringTo({6, 3, 4});
  EXPECT_THAT(workers.policy().WaitingFor(), ElementsAre(1));
  workers.Push(2);
  EXPECT_THAT(workers.deferred(), ElementsAre(0));
  workers.Push(1);
  EXPECT_THAT(workers.deferred(), IsEmpty());
  EXPECT_THAT(workers.policy().WaitingFor(), IsEmpty());
}

TEST(SspPolicy, AGradientIsAppliedAtOnceAndItsAnswerDeferredUntilTheSlowestCatchesUp) {
  const auto policy = Play(Ssp(2, 1), {
                                          {Join(0), ""},
                                          {Join(1), ""},
                                          {Push(0, {.step = 1, .base = 0}), "v1: 0"},
                                          {Push(0, {.step = 2, .base = 1}), "v2: 0 deferred"},
                                          {Push(1, {.step = 1, .base = 0}), "v3: 1 staleness 2; release 0"},
                                      });
  EXPECT_EQ(policy->counters().accepted, 3);
  EXPECT_EQ(policy->counters().staleness_histogram[0], 2);
  EXPECT_EQ(policy->counters().staleness_histogram[2], 1);
}

TEST(SspPolicy, WithStalenessZeroAllContinueTogether) {
  Play(Ssp(3, 0), {
                      {Join(0), ""},
                      {Join(1), ""},
                      {Join(2), ""},
                      {Push(2, {.step = 1, .base = 0}), "v1: 2 deferred"},
                      {Push(0, {.step = 1, .base = 0}), "v2: 0 staleness 1 deferred"},
                      {Push(1, {.step = 1, .base = 0}), "v3: 1 staleness 2; release 0; release 2"},
                  });
}

TEST(SspPolicy, AWorkerThatNeverJoinedIsAtClockZero) {
  const auto policy = Play(Ssp(3, 0), {{Join(0), ""}, {Push(0, {.step = 1, .base = 0}), "v1: 0 deferred"}});
  EXPECT_THAT(policy->WaitingFor(), ElementsAre(1, 2));
  Tell(*policy, Join(1));
  EXPECT_THAT(policy->WaitingFor(), ElementsAre(1, 2));
  EXPECT_EQ(ToText(Tell(*policy, Leave(2, 0))), "");
  EXPECT_EQ(ToText(Tell(*policy, Leave(1))), "release 0");
}

TEST(SspPolicy, ClocksContinueFromTheRestoredOnes) {
  PolicyConfig config = Ssp(2, 1);
  config.initial_version = 9;
  config.initial_clocks = {{0, 6}, {1, 3}};
  const auto policy = Play(config, {
                                       {Join(0), ""},
                                       {Join(1), ""},
                                   });
  EXPECT_EQ(policy->ClockOf(0), 4) << "no further than where it may continue";
  EXPECT_EQ(policy->ClockOf(1), 3);
  EXPECT_EQ(ToText(Tell(*policy, Push(0, {.step = 1, .base = 9}))), "v10: 0 deferred");
  EXPECT_THAT(policy->WaitingFor(), ElementsAre(1));
}

TEST(SspPolicy, ADeadWorkerIsNotTheSlowest) {
  Play(Ssp(2, 1), {
                      {Join(0), ""},
                      {Join(1), ""},
                      {Push(0, {.step = 1, .base = 0}), "v1: 0"},
                      {Push(0, {.step = 2, .base = 1}), "v2: 0 deferred"},
                      {Leave(1), "release 0"},
                      {Push(0, {.step = 3, .base = 2}), "v3: 0"},
                  });
}

TEST(SspPolicy, AnAnswerIsReleasedWhenItsWorkerLeavesOrComesBack) {
  Play(Ssp(2, 0), {
                      {Join(0), ""},
                      {Join(1), ""},
                      {Push(0, {.step = 1, .base = 0}), "v1: 0 deferred"},
                      {Join(0, 2), "release 0"},
                      {Push(0, {.step = 1, .base = 1, .incarnation = 2}), "v2: 0 deferred"},
                      {Leave(0, 2), "release 0"},
                  });
}

TEST(SspPolicy, AReturningWorkerDelaysNoOtherAndKeepsItsClock) {
  const auto policy = Play(Ssp(2, 1), {
                                          {Join(0), ""},
                                          {Join(1), ""},
                                          {Push(1, {.step = 1, .base = 0}), "v1: 1"},
                                          {Leave(1), ""},
                                          {Push(0, {.step = 1, .base = 1}), "v2: 0"},
                                          {Push(0, {.step = 2, .base = 2}), "v3: 0"},
                                          {Push(0, {.step = 3, .base = 3}), "v4: 0"},
                                          {Join(1, 2), ""},
                                      });
  EXPECT_EQ(policy->ClockOf(1), 3) << "at the slowest clock";
  EXPECT_EQ(ToText(Tell(*policy, Push(0, {.step = 4, .base = 4}))), "v5: 0");
  EXPECT_EQ(ToText(Tell(*policy, Join(0, 2))), "");
  EXPECT_EQ(policy->ClockOf(0), 4) << "at its own clock";
  EXPECT_EQ(ToText(Tell(*policy, Push(0, {.step = 1, .base = 5, .incarnation = 2}))), "v6: 0 deferred");
  EXPECT_EQ(ToText(Tell(*policy, Join(0, 3))), "release 0");
  EXPECT_EQ(policy->ClockOf(0), 4) << "rejoining does not bypass the limit";
}

TEST(SspPolicy, TheSlowestClockStaysWhenAllHaveLeft) {
  const auto policy = Play(Ssp(2, 0), {
                                          {Join(0), ""},
                                          {Join(1), ""},
                                          {Push(0, {.step = 1, .base = 0}), "v1: 0 deferred"},
                                          {Leave(1), "release 0"},
                                          {Leave(0), ""},
                                          {Join(1, 2), ""},
                                      });
  EXPECT_EQ(policy->ClockOf(1), 1);
}

TEST(SspPolicy, ARetriedPushCountsOnceAndAnotherPushWhileDeferredIsRefused) {
  const auto policy = Play(Ssp(2, 0), {
                                          {Join(0), ""},
                                          {Join(1), ""},
                                          {Push(0, {.step = 1, .base = 0}), "v1: 0 deferred"},
                                          {Push(0, {.step = 1, .base = 0}), ""},
                                          {Push(0, {.step = 2, .base = 0}), "refuse 0: second in round"},
                                          {Push(1, {.step = 1, .base = 7}), "refuse 1: ahead"},
                                          {Push(1, {.step = 2, .base = 0}), "v2: 1 staleness 1; release 0"},
                                      });
  EXPECT_EQ(policy->counters().duplicate, 1);
  EXPECT_EQ(policy->counters().refused_other, 2);
  EXPECT_EQ(policy->ClockOf(0), 1) << "a refused push does not advance the clock";
}

TEST(SspPolicy, TheEndReleasesAllAnswers) {
  PolicyConfig config = Ssp(3, 0);
  config.final_version = 2;
  Play(config, {
                   {Join(0), ""},
                   {Join(1), ""},
                   {Push(0, {.step = 1, .base = 0}), "v1: 0 deferred"},
                   {Push(1, {.step = 1, .base = 1}), "v2: 1; release 0"},
                   {Push(0, {.step = 2, .base = 2}), "refuse 0: finished"},
               });
  Play(Ssp(2, 0), {
                      {Join(0), ""},
                      {Push(0, {.step = 1, .base = 0}), "v1: 0 deferred"},
                      {End(), "release 0"},
                      {Push(0, {.step = 2, .base = 1}), "refuse 0: finished"},
                  });
}

// Random lives of a job, observed by a checker that counts clocks independently.
TEST(SspPolicy, TheBoundHoldsAndNoWorkerWaitsNeedlesslyUnderRandomEvents) {
  int64_t deferred_ever = 0;
  for (int seed = 0; seed < test::Effort(2000, 300) && !testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE(seed);
    Random random(static_cast<uint64_t>(seed), "ssp");
    const int workers = 1 + static_cast<int>(random.NextBelow(6));
    const int64_t bound = random.NextBelow(4);
    SspPolicy policy(Ssp(workers, bound));
    std::map<int, uint64_t> live;
    std::set<int> heard, deferred;
    std::map<int, int64_t> clocks, steps;
    uint64_t incarnation = 0;
    for (int event = 0; event < 200; ++event) {
      const int worker = static_cast<int>(random.NextBelow(static_cast<uint32_t>(workers)));
      std::vector<Decision> decisions;
      const uint32_t dice = random.NextBelow(100);
      if (live.count(worker) == 0 || dice < 3) {
        live[worker] = ++incarnation;
        heard.insert(worker);
        steps[worker] = 0;
        decisions = policy.OnJoin(worker, incarnation);
        if (policy.ClockOf(worker) < clocks[worker]) {
          ASSERT_EQ(policy.ClockOf(worker), clocks[worker] - 1) << "but what no answer had come for";
        }
        clocks[worker] = policy.ClockOf(worker);
      } else if (dice < 6) {
        decisions = policy.OnLeave(worker, live[worker]);
        live.erase(worker);
      } else if (deferred.count(worker) == 0) {
        decisions = policy.OnGradient({{worker, live[worker], ++steps[worker]}, policy.version(), 1});
        ASSERT_TRUE(std::holds_alternative<Apply>(decisions.at(0)));
        ++clocks[worker];
        if (std::get<Apply>(decisions[0]).deferred) deferred.insert(worker);
        deferred_ever += static_cast<int64_t>(std::get<Apply>(decisions[0]).deferred);
      }
      for (const Decision& decision : decisions) {
        if (const Release* release = std::get_if<Release>(&decision)) {
          ASSERT_EQ(deferred.erase(release->key.worker), 1u);
        }
      }
      int64_t slowest = static_cast<int>(heard.size()) < workers ? 0 : INT64_MAX;
      for (const auto& [other, life] : live) slowest = std::min(slowest, clocks[other]);
      for (const auto& [other, life] : live) {
        ASSERT_EQ(deferred.count(other) != 0, clocks[other] > slowest + bound) << "worker " << other;
        ASSERT_LE(clocks[other], slowest + bound + 1);
      }
      ASSERT_EQ(policy.WaitingFor().empty(), deferred.empty());
    }
  }
  EXPECT_GT(deferred_ever, 10000);
}

}  // namespace
}  // namespace cairn::ps
