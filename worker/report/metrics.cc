#include "worker/report/metrics.h"

#include <chrono>
#include <utility>

#include "common/system/process_usage.h"

namespace cairn::worker {
namespace {

constexpr size_t kCurvePoints = 240;
constexpr auto kPointEvery = std::chrono::seconds(1);

double SecondsOf(const WorkerMetrics::Step& step) {
  return step.input_seconds + step.compute_seconds + step.answer_seconds;
}

}  // namespace

WorkerMetrics::WorkerMetrics(const Clock& clock, std::string device)
    : clock_(clock),
      device_(std::move(device)),
      started_(clock.Now()),
      history_(kCurvePoints, kPointEvery),
      reported_at_(started_),
      point_at_(started_) {}

void WorkerMetrics::OnStep(const Step& step) {
  step_seconds.Add(SecondsOf(step));
  input_seconds.Add(step.input_seconds);
  compute_seconds.Add(step.compute_seconds);
  answer_seconds.Add(step.answer_seconds);
  examples.Add(step.examples);
  if (step.duplicate) duplicate.Add();
  switch (step.outcome) {
    case v1::OUTCOME_ACCEPTED:
      accepted.Add();
      staleness.Add(static_cast<double>(step.staleness));
      break;
    case v1::OUTCOME_STALE:
      stale.Add();
      break;
    default:
      refused.Add();
  }

  const TimePoint now = clock_.Now();
  MutexLock lock(mutex_);
  last_ = step;
  sums_.examples += step.examples;
  sums_.input_seconds += step.input_seconds;
  sums_.compute_seconds += step.compute_seconds;
  sums_.answer_seconds += step.answer_seconds;
  ++sum_steps_;
  loss_sum_ += step.loss;
  ++point_steps_;
  point_examples_ += step.examples;
  if (now - point_at_ < kPointEvery) return;
  rate_ = static_cast<double>(point_examples_) / ToSeconds(now - point_at_);
  if (history_.Wants(now)) history_.Add(now, {rate_, loss_sum_ / static_cast<double>(point_steps_)});
  loss_sum_ = 0;
  point_steps_ = point_examples_ = 0;
  point_at_ = now;
}

void WorkerMetrics::OnCheckpoint(int64_t version, bool saved) {
  if (!saved) {
    checkpoints_failed.Add();
    return;
  }
  checkpoints.Add();
  checkpoint_version = version;
  checkpoint_unix_seconds = UnixSeconds();
}

v1::WorkerReport WorkerMetrics::Report() {
  v1::WorkerReport report;
  report.set_examples(examples.value());
  report.set_device(device_);
  report.set_resident_bytes(UsageOfThisProcess().resident_bytes);
  const TimePoint now = clock_.Now();
  MutexLock lock(mutex_);
  report.set_loss(last_.loss);
  report.set_epoch(last_.epoch);
  if (sum_steps_ > 0) {
    const auto steps = static_cast<double>(sum_steps_);
    report.set_examples_per_second(static_cast<double>(sums_.examples) / ToSeconds(now - reported_at_));
    report.set_step_seconds(SecondsOf(sums_) / steps);
    report.set_input_seconds(sums_.input_seconds / steps);
    report.set_compute_seconds(sums_.compute_seconds / steps);
    report.set_answer_seconds(sums_.answer_seconds / steps);
  }
  sums_ = {};
  sum_steps_ = 0;
  reported_at_ = now;
  return report;
}

WorkerMetrics::Now WorkerMetrics::now() const {
  const TimePoint now = clock_.Now();
  MutexLock lock(mutex_);
  return {.last = last_,
          .examples_per_second = rate_,
          .history = history_.points(),
          .device = device_,
          .up_seconds = ToSeconds(now - started_)};
}

}  // namespace cairn::worker
