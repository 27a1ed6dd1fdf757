#include "worker/training/epoch_display.h"

#include <algorithm>
#include <chrono>

namespace cairn::worker {
namespace {

// The interval between queries to ps/0.
constexpr auto kReportEvery = std::chrono::seconds(2);

}  // namespace

EpochDisplay::EpochDisplay(const Trainer& trainer, client::JobControl& control, Progress& progress,
                           TensorBoardWriter* tensorboard)
    : trainer_(trainer),
      training_(trainer.deps()),
      control_(control),
      progress_(progress),
      tensorboard_(tensorboard),
      metrics_(training_.setup.metrics) {}

void EpochDisplay::StartRun(const v1::Counters& counters) {
  last_counters_ = counters;
  examples_before_ = counters.examples();
}

void EpochDisplay::Start(int members) {
  steps_ = 0;
  metrics_.Reset();
  first_counters_ = last_counters_;
  start_ = training_.clock.Now();
  report_at_ = start_ + kReportEvery;
  const TrainingSetup& setup = training_.setup;
  const int64_t epoch = trainer_.epoch(), batches = trainer_.batches_per_epoch();
  int64_t steps_in_all = setup.options.epochs * batches;
  if (setup.options.train_steps > 0 || (setup.sync() && !setup.dynamic()))
    steps_in_all = setup.job.final_version();
  // The progress line counts batches, and each update takes one batch from every current member.
  if (setup.options.train_steps > 0 && setup.sync() && setup.dynamic()) steps_in_all *= members;
  const int64_t epochs = (steps_in_all + batches - 1) / batches;
  if (tensorboard_ != nullptr) tensorboard_->Begin(epoch, training_.steps.version(), examples_before_);
  progress_.StartEpoch(epoch + 1, std::max(epochs, epoch + 1), batches);
}

void EpochDisplay::OnBatch(const data::Batch& batch, const nn::BatchView& view,
                           const nn::BatchResult& result) {
  steps_ = std::max(steps_, std::min(batch.index + 1, trainer_.batches_per_epoch()));
  metrics_.Update(view, result);
}

void EpochDisplay::OnStep() {
  const TraceSpan report(training_.instruments.trace, TraceLane::kStep, "report");
  if (progress_.redraws() && training_.clock.Now() >= report_at_) ReportCluster();
  progress_.Update(steps_, [this] { return metrics_.Values(); });
  const int64_t version = training_.steps.version();
  if (tensorboard_ != nullptr && tensorboard_->WantsStep(version)) {
    tensorboard_->OnStep(version, metrics_.Values());
  }
}

void EpochDisplay::CompleteSteps() {
  progress_.Update(trainer_.batches_per_epoch(), [this] { return metrics_.Values(); });
}

void EpochDisplay::End(const ShownMetrics& metrics) {
  ReportCluster();
  progress_.EndEpoch(metrics);
}

void EpochDisplay::ReportCluster() {
  const TimePoint now = training_.clock.Now();
  report_at_ = now + kReportEvery;
  const auto counters = control_.ServerCounters();
  if (!counters.ok()) return;  // a server failed: the next step reports it
  last_counters_ = *counters;
  progress_.SetCluster(
      {.examples_per_second =
           static_cast<double>(counters->examples() - first_counters_.examples()) / ToSeconds(now - start_),
       .stale = counters->stale() - first_counters_.stale(),
       .refused = counters->rejected() - first_counters_.rejected()});
}

void EpochDisplay::Record(const ShownMetrics& metrics) {
  if (tensorboard_ == nullptr) return;
  const auto counters = control_.ServerCounters();
  const auto rate = control_.LearningRate();
  if (!counters.ok() || !rate.ok()) return;  // a server failed: the next step reports it
  tensorboard_->OnEpochEnd({.epoch = trainer_.epoch(),
                            .version = training_.steps.version(),
                            .examples = counters->examples(),
                            .gradients_stale = counters->stale(),
                            .gradients_rejected = counters->rejected(),
                            .staleness_max = counters->staleness_max(),
                            .learning_rate = *rate,
                            .metrics = metrics,
                            .parameters = training_.steps.parameters(),
                            .last_gradients = trainer_.last_gradients()});
}

}  // namespace cairn::worker
