#include "cli/planner/planner.h"

#include <string>

#include "common/net/wire/update_chunk.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cairn::cli {
namespace {

using ::testing::HasSubstr;

// One matrix of 100 MB that divides evenly, at a goodput of 1 Gbit/s: 0.8 s in each direction.
PlanInput LargeModel() {
  return {.variables = {{.name = "kernel", .shape = Shape({25600, 1000 * 1000 / 1024})}},
          .workers = 1,
          .link = 1e9 / kGoodput,
          .step_compute = 0.3,
          .round_trip = 0.001,
          .task_rate = 1e12,
          .memory_bandwidth = 1e15,
          .norms = true};
}

TEST(Planner, OneWorkerSendsAndReceivesItsBytesOnce) {
  const PlanInput input = LargeModel();
  const StepPlan plan = PlanStep(input, 1);
  const double transfer = static_cast<double>(plan.worker_bytes) / 125e6;
  EXPECT_EQ(plan.worker_bytes, 25600 * 976 * 4);
  EXPECT_EQ(plan.server_bytes, plan.worker_bytes);
  EXPECT_NEAR(plan.pull, transfer, 1e-9);
  EXPECT_NEAR(plan.push, transfer - 0.2, 1e-9);  // backward, two thirds of 0.3 s, overlaps with push
  EXPECT_NEAR(plan.latency, 0.001, 1e-12) << "a single server decides alone";
  EXPECT_NEAR(PlanStep(input, 2).latency, 0.002, 1e-12);
  EXPECT_NEAR(plan.step, plan.compute + plan.push + plan.update + plan.pull + plan.latency, 1e-12);
}

TEST(Planner, WorkersShareTheLinkOfAServerAndServersShareTheModel) {
  PlanInput input = LargeModel();
  const double alone = PlanStep(input, 1).pull;
  input.workers = 8;
  EXPECT_NEAR(PlanStep(input, 1).pull, 8 * alone, 1e-9);
  EXPECT_STREQ(PlanStep(input, 1).bottleneck, "the servers' links");
  const StepPlan four = PlanStep(input, 4);
  EXPECT_NEAR(four.pull, 2 * alone * four.imbalance, 1e-9);
  EXPECT_LT(four.imbalance, 1.03);
  // With as many servers as workers no link carries more than a worker's.
  EXPECT_NEAR(PlanStep(input, 8).pull, alone, alone * 0.05);
  EXPECT_STREQ(PlanStep(input, 16).bottleneck, "the workers' links");
}

TEST(Planner, SmallerEncodingsSaveLinkBandwidthButNoMemoryBandwidth) {
  PlanInput input = LargeModel();
  input.memory_bandwidth = 1e9;
  input.step_compute = 0.15;
  const StepPlan whole = PlanStep(input, 1);
  input.gradient_bytes = 1;
  input.value_bytes = 2;
  const StepPlan less = PlanStep(input, 1);
  EXPECT_EQ(less.worker_bytes, whole.worker_bytes / 4);
  EXPECT_EQ(less.server_pull_bytes, whole.server_pull_bytes / 2);
  EXPECT_NEAR(less.pull, whole.pull / 2, 1e-9);
  EXPECT_NEAR(less.push, (whole.push + 0.1) / 4 - 0.1, 1e-9);
  EXPECT_EQ(less.update, whole.update);
  EXPECT_THAT(AsText(input, less, less), HasSubstr("of gradients and"));
}

TEST(Planner, ValuesArePulledWhileGradientsArePushed) {
  PlanInput input = LargeModel();
  input.memory_bandwidth = 1e9;
  const StepPlan after = PlanStep(input, 1);
  input.norms = false;
  const StepPlan ahead = PlanStep(input, 1);
  const double last = static_cast<double>(net::kUpdateChunk) / (25600 * 976);  // of the values
  EXPECT_EQ(ahead.push, after.push);
  EXPECT_NEAR(ahead.pull, last * after.pull, 1e-9) << "the last piece's way";
  EXPECT_NEAR(ahead.update, last * after.update, 1e-9);
  EXPECT_LT(ahead.step, 0.6 * after.step);

  input.gradient_bytes = 1;  // push takes a quarter of the time of pull
  const double up = after.pull / 4;
  EXPECT_NEAR(PlanStep(input, 1).pull, 0.1 + last * up + after.pull - (0.3 + PlanStep(input, 1).push), 1e-9)
      << "all of them, from the end of forward and the first piece on";
}

TEST(Planner, TheNextForwardPassStartsOnLayersWhoseValuesHaveArrived) {
  PlanInput input = LargeModel();
  EXPECT_EQ(PlanStep(input, 1).ahead, 0) << "the only layer waits for all values";
  input.variables.clear();
  for (int i = 0; i < 10; ++i) {
    input.variables.push_back(
        {.name = std::string(1, static_cast<char>('a' + i)), .shape = Shape({2560, 976})});
  }
  const StepPlan plan = PlanStep(input, 1);
  EXPECT_NEAR(plan.ahead, 0.3 / 3 * 0.9, 1e-9);
  EXPECT_NEAR(plan.step, plan.compute - plan.ahead + plan.push + plan.update + plan.pull + plan.latency,
              1e-12);
  input.link *= 100;  // pull is shorter than the forward pass
  EXPECT_NEAR(PlanStep(input, 1).ahead, PlanStep(input, 1).pull, 1e-12);
}

// 4,000 distinct rows of 25 floats for each worker: 400 kB of values, 32 kB of ids.
PlanInput WithTable() {
  PlanInput input = LargeModel();
  input.variables = {{.name = "kernel", .shape = Shape({250, 1000})}};
  input.tables = {{.dim = 25, .row_bytes = 200, .ids = 10'000, .distinct = 4'000}};
  return input;
}

TEST(Planner, RowsAndIdsTravelAfterBackwardAndTheirValuesWithThePull) {
  PlanInput input = WithTable();
  const StepPlan plan = PlanStep(input, 1);
  input.tables.clear();
  const StepPlan without = PlanStep(input, 1);
  EXPECT_EQ(plan.worker_row_bytes, 4000 * (8 + 100));
  EXPECT_EQ(plan.worker_row_pull_bytes, 4000 * 100);
  EXPECT_EQ(plan.worker_bytes, without.worker_bytes + plan.worker_row_bytes);
  EXPECT_NEAR(plan.push - without.push, 432e3 / 125e6, 1e-9);
  EXPECT_NEAR(plan.pull - without.pull, 400e3 / 125e6, 1e-9);
  EXPECT_NEAR(plan.step - without.step - without.ahead, plan.tables, 1e-9);
  EXPECT_NEAR(plan.server_rows_per_second, 4000 / plan.step, 1e-6);
  EXPECT_EQ(plan.ahead, 0) << "the next forward pass begins with the answer";
}

TEST(Planner, ServersDivideTheRowsOfAllWorkers) {
  PlanInput input = WithTable();
  input.workers = 8;
  const StepPlan one = PlanStep(input, 1), four = PlanStep(input, 4);
  EXPECT_NEAR(static_cast<double>(one.server_bytes), 4 * static_cast<double>(four.server_bytes), 200'000);
  EXPECT_GT(one.update, 3.9 * four.update);
  EXPECT_THAT(AsText(input, one, four), HasSubstr("rows of embedding tables"));
}

TEST(Planner, StaleRowsTravelBesideTheStep) {
  PlanInput input = WithTable();
  const StepPlan exact = PlanStep(input, 1);
  input.stale_rows = true;
  const StepPlan stale = PlanStep(input, 1);
  EXPECT_NEAR(exact.step - stale.step, 400e3 / 125e6, 1e-9);
  EXPECT_EQ(stale.worker_row_pull_bytes, exact.worker_row_pull_bytes);
  input.row_bytes = 400;  // the link is the limit: 40 MB each way
  input.step_compute = 0.001;
  EXPECT_GT(PlanStep(input, 1).step, 0.32);
}

TEST(Planner, HalfPrecisionHalvesRowsButNotIds) {
  PlanInput input = WithTable();
  input.row_bytes = 2;
  EXPECT_EQ(PlanStep(input, 1).worker_row_bytes, 4000 * (8 + 50));
}

TEST(Planner, SmallValuesArePulledAfterTheUpdate) {
  PlanInput input = LargeModel();
  input.variables = {{.name = "kernel", .shape = Shape({1000, 200})}};
  const StepPlan after = PlanStep(input, 1);
  input.norms = false;
  EXPECT_EQ(PlanStep(input, 1).step, after.step);
}

TEST(Planner, TheBestPlanHasTheFewestServersThatAreNearlyAsFastAsAnyNumber) {
  PlanInput input = LargeModel();
  EXPECT_EQ(BestPlan(input, 16).servers, 1);
  input.workers = 4;
  EXPECT_EQ(BestPlan(input, 16).servers, 4);
}

TEST(Planner, ServersDoNotHelpBeyondTheNumberOfRows) {
  PlanInput input = LargeModel();
  input.workers = 8;
  input.variables = {{.name = "row", .shape = Shape({1, 25'000'000})}};
  EXPECT_EQ(PlanStep(input, 4).server_bytes, 8 * PlanStep(input, 4).worker_bytes);
  EXPECT_EQ(BestPlan(input, 16).servers, 1);
}

TEST(Planner, NamesTheBottleneck) {
  PlanInput input = LargeModel();
  input.step_compute = 100;
  EXPECT_STREQ(PlanStep(input, 1).bottleneck, "the computation");
  input = LargeModel();
  input.task_rate = 1e8;
  EXPECT_STREQ(PlanStep(input, 1).bottleneck, "the workers' processors");
  input.workers = 2;
  EXPECT_STREQ(PlanStep(input, 1).bottleneck, "the servers' processors");
  input = LargeModel();
  input.memory_bandwidth = 1e7;
  EXPECT_STREQ(PlanStep(input, 1).bottleneck, "the servers' memory");
  input = LargeModel();
  input.round_trip = 10;
  EXPECT_STREQ(PlanStep(input, 1).bottleneck, "the latency");
}

TEST(Planner, ShortModelsSendTheirLastChunkAfterBackward) {
  PlanInput input = LargeModel();
  input.variables = {{.name = "kernel", .shape = Shape({250, 1000})}};  // 1 MB, 8 ms of 200 ms
  EXPECT_NEAR(PlanStep(input, 1).push, 262144 / 125e6, 1e-9);
}

TEST(Planner, AModelWithoutVariablesCostsOnlyComputation) {
  PlanInput input = LargeModel();
  input.variables.clear();
  EXPECT_NEAR(PlanStep(input, 3).step, 0.302, 1e-9);
}

TEST(Planner, TextAndTableShowThePlan) {
  PlanInput input = LargeModel();
  input.workers = 2;
  const std::string text = AsText(input, PlanStep(input, 1), BestPlan(input, 4));
  EXPECT_THAT(text, HasSubstr("1 ps and 2 workers"));
  EXPECT_THAT(text, HasSubstr("bottleneck: the servers' links"));
  EXPECT_THAT(text, HasSubstr("best: 2 ps"));
  const int workers[] = {1, 1000}, servers[] = {1, 200};
  const std::string table = AsTable(input, workers, servers);
  EXPECT_THAT(table, HasSubstr("200 ps"));
  EXPECT_THAT(table, HasSubstr("\n   1000"));
}

TEST(Planner, EstimatesTheOpenFilesOfEachTask) {
  PlanInput input = LargeModel();
  input.workers = 100;
  EXPECT_EQ(DescriptorsAsText(input, 3),
            "open files (ulimit -n): each server needs about 1240, each worker 76\n");
}

TEST(Planner, ParsesRatesAndTimes) {
  EXPECT_DOUBLE_EQ(ParseLinkRate("10Gbit").value(), 1e10);
  EXPECT_DOUBLE_EQ(ParseLinkRate("2.5 Gbit/s").value(), 2.5e9);
  EXPECT_DOUBLE_EQ(ParseLinkRate("100Mbit").value(), 1e8);
  EXPECT_DOUBLE_EQ(ParseSeconds("30ms").value(), 0.03);
  EXPECT_DOUBLE_EQ(ParseSeconds("200 us").value(), 0.0002);
  EXPECT_DOUBLE_EQ(ParseSeconds("1.5").value(), 1.5);
  for (const char* bad : {"", "Gbit", "10", "-1Gbit", "0Gbit", "infGbit", "10GB"}) {
    EXPECT_THAT(ParseLinkRate(bad).status().message(), HasSubstr("is not of the form 10Gbit")) << bad;
  }
  for (const char* bad : {"", "ms", "-1s", "3 hours", "nan"}) {
    EXPECT_THAT(ParseSeconds(bad).status().message(), HasSubstr("is not of the form 30ms")) << bad;
  }
}

}  // namespace
}  // namespace cairn::cli
