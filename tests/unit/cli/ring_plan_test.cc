#include "cli/planner/ring_plan.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cairn::cli {
namespace {

using ::testing::HasSubstr;

// 100 MB at a goodput of 1 Gbit/s: 0.8 s per transfer over a link.
PlanInput LargeModel(int workers) {
  return {.variables = {{.name = "kernel", .shape = Shape({25000, 1000})}},
          .workers = workers,
          .link = 1e9 / kGoodput,
          .step_compute = 0.3,
          .round_trip = 0.001,
          .task_rate = 1e12,
          .memory_bandwidth = 1e15};
}

TEST(RingPlan, EachLinkCarriesNearlyTwiceTheModelForAnyNumberOfWorkers) {
  EXPECT_EQ(PlanRing(LargeModel(2)).worker_bytes, 100'000'000);
  EXPECT_EQ(PlanRing(LargeModel(4)).worker_bytes, 150'000'000);
  const RingPlan plan = PlanRing(LargeModel(4));
  EXPECT_NEAR(plan.ring, 1.2 - 0.2, 1e-9);  // two thirds of 0.3 s overlap with backward
  EXPECT_NEAR(plan.latency, 0.003, 1e-12);
  EXPECT_NEAR(plan.step, plan.compute + plan.ring + plan.update + plan.latency, 1e-12);
}

TEST(RingPlan, ASingleWorkerSendsNothing) {
  const RingPlan plan = PlanRing(LargeModel(1));
  EXPECT_EQ(plan.worker_bytes, 0);
  EXPECT_NEAR(plan.step, 0.3, 1e-6);
}

TEST(RingPlan, BackwardOverlapsAllButTheLastBucket) {
  PlanInput input = LargeModel(2);
  input.step_compute = 10;
  EXPECT_NEAR(PlanRing(input).ring, 2 * 262144 / 125e6, 1e-9);
}

TEST(RingPlan, EveryWorkerUpdatesTheWholeModel) {
  PlanInput input = LargeModel(4);
  input.memory_bandwidth = 1e9;
  input.optimizer_slots = 2;
  EXPECT_NEAR(PlanRing(input).update, 0.7, 1e-9);
}

TEST(RingPlan, TheTextNamesTheFasterMode) {
  const PlanInput input = LargeModel(8);
  const auto text = [&](int servers) {
    return AsText(input, PlanRing(input), PlanStep(input, servers), PlanStep(input, 8));
  };
  EXPECT_THAT(text(1), HasSubstr("all-reduce: 1507.0 ms per step without servers, faster than with 1 ps"));
  EXPECT_THAT(text(8), HasSubstr("with 8 ps\n"));
}

}  // namespace
}  // namespace cairn::cli
