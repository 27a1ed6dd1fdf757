#include "worker/report/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>

#include "tests/support/fake_clock.h"
#include "worker/report/status_pages.h"

namespace cairn::worker {
namespace {

using ::testing::HasSubstr;

class WorkerMetricsTest : public testing::Test {
 protected:
  void Step(double loss, v1::Outcome outcome = v1::OUTCOME_ACCEPTED) {
    clock_.Advance(std::chrono::milliseconds(500));
    metrics_.OnStep({.examples = 32,
                     .input_seconds = 0.125,
                     .compute_seconds = 0.25,
                     .answer_seconds = 0.125,
                     .loss = loss,
                     .outcome = outcome,
                     .staleness = 2,
                     .version = ++version_,
                     .epoch = 1});
  }

  test::FakeClock clock_;
  WorkerMetrics metrics_{clock_, "/cpu:0"};
  int64_t version_ = 0;
};

TEST_F(WorkerMetricsTest, ReportCoversTheTimeSinceTheLastReport) {
  for (int i = 0; i < 4; ++i) Step(3);
  const v1::WorkerReport first = metrics_.Report();
  EXPECT_EQ(first.examples_per_second(), 64);
  EXPECT_EQ(first.step_seconds(), 0.5);
  EXPECT_EQ(first.input_seconds(), 0.125);
  EXPECT_EQ(first.device(), "/cpu:0");
  EXPECT_GT(first.resident_bytes(), 0);
  clock_.Advance(std::chrono::seconds(1));
  const v1::WorkerReport idle = metrics_.Report();
  EXPECT_EQ(idle.examples_per_second(), 0);
  EXPECT_EQ(idle.examples(), 128);
  EXPECT_EQ(idle.loss(), 3);
}

TEST_F(WorkerMetricsTest, GradientsAreCountedByOutcome) {
  Step(1);
  Step(1, v1::OUTCOME_STALE);
  Step(1, v1::OUTCOME_FINISHED);
  EXPECT_EQ(metrics_.accepted.value(), 1);
  EXPECT_EQ(metrics_.stale.value(), 1);
  EXPECT_EQ(metrics_.refused.value(), 1);
  EXPECT_EQ(metrics_.staleness.count(), 1) << "only accepted gradients count";
}

TEST_F(WorkerMetricsTest, CurvePointsAreMeans) {
  for (const double loss : {4.0, 2.0, 1.0, 1.0}) Step(loss);
  const auto now = metrics_.now();
  ASSERT_EQ(now.history.size(), 2u);
  EXPECT_EQ(now.history[0].values[0], 64);
  EXPECT_EQ(now.history[0].values[1], 3);
  EXPECT_EQ(now.history[1].values[1], 1);
  EXPECT_EQ(now.examples_per_second, 64);
}

TEST_F(WorkerMetricsTest, PagesShowTheMetrics) {
  Step(0.5);
  metrics_.OnCheckpoint(40, true);
  metrics_.OnCheckpoint(50, false);
  const WorkerIdentity identity = {.task = "worker/1", .address = "host:2", .job = {}, .model = "cnn"};
  const std::string metrics = PageOf(identity, metrics_, "/metrics").body;
  EXPECT_THAT(metrics, HasSubstr("\ncairn_worker_examples_total 32\n"));
  EXPECT_THAT(metrics, HasSubstr("\ncairn_worker_loss 0.5\n"));
  EXPECT_THAT(metrics, HasSubstr("cairn_worker_step_phase_seconds_sum{phase=\"compute\"} 0.25\n"));
  EXPECT_THAT(metrics, HasSubstr("cairn_worker_checkpoints_total{outcome=\"failed\"} 1\n"));
  EXPECT_THAT(metrics, HasSubstr("\ncairn_worker_checkpoint_version 40\n"));
  const std::string page = PageOf(identity, metrics_, "/statusz").body;
  EXPECT_THAT(page, HasSubstr("worker/1"));
  EXPECT_THAT(page, HasSubstr("step 40"));
  EXPECT_EQ(PageOf(identity, metrics_, "/else").status, 404);
}

}  // namespace
}  // namespace cairn::worker
