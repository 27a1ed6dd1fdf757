#include "worker/trainer.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/core/log.h"
#include "common/core/random.h"
#include "common/core/status.h"
#include "worker/digest.h"
#include "worker/job.h"

namespace cairn::worker {
namespace {

Duration Seconds(double seconds) {
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(seconds));
}

// Of what a worker draws at random in one step: other than any other worker's and step's, the same on every
// run.
uint64_t StepSeed(uint64_t seed, int worker, int64_t epoch, int64_t batch) {
  return StreamOf(absl::StrCat("step/", seed, "/", worker, "/", epoch, "/", batch));
}

std::string DrawRunId() {
  std::random_device entropy;
  return absl::StrCat(absl::Hex(entropy(), absl::kZeroPad8), absl::Hex(entropy(), absl::kZeroPad8));
}

// What a worker that could not go on tells the servers: only a permanent failure ends the job for all.
v1::LeaveReason ReasonFor(const absl::Status& status) {
  return ExitCodeOf(status) == ExitCode::kFailure && !absl::IsCancelled(status) ? v1::LEAVE_REASON_FAILED
                                                                                : v1::LEAVE_REASON_STOPPED;
}

}  // namespace

Trainer::Trainer(const Parts& parts)
    : parts_(parts),
      loader_(*parts.data.train, parts.sampler),
      gradients_(parts.model.num_parameters()),
      metrics_(parts.metrics) {
  if (chief() && parts_.options.validation && parts_.data.validation != nullptr) {
    evaluator_ = std::make_unique<Evaluator>(*parts_.data.validation, parts_.replica, parts_.metrics);
  }
}

void Trainer::Stop() {
  stop_ = true;
  parts_.client.Interrupt(absl::CancelledError("stopped by a signal"));
}

absl::Status Trainer::Initialise() {
  v1::Job job = parts_.job;
  job.set_run_id(DrawRunId());
  return parts_.client.Initialise(job, parts_.model.InitialParameters(parts_.options.seed));
}

absl::StatusOr<Summary> Trainer::Run() {
  absl::Status status = Train();
  if (status.ok() && chief()) {
    auto summary = WrapUp();
    if (summary.ok()) return summary;
    status = summary.status();
  }
  if (stop_) status = absl::CancelledError("stopped by a signal");
  if (status.ok()) {
    parts_.client.Leave(v1::LEAVE_REASON_FINISHED, "");
    return Summary{};
  }
  parts_.client.Leave(ReasonFor(status), std::string(status.message()));
  return status;
}

absl::Status Trainer::Train() {
  client::TrainingClient& client = parts_.client;
  CAIRN_RETURN_IF_ERROR(client.WaitReady(parts_.job));
  CAIRN_RETURN_IF_ERROR(client.Join());
  LogInfo("joined the job at step ", client.version());
  start_ = parts_.clock.Now();
  while (!done()) {
    if (position() / loader_.batches_per_epoch() != epoch_) {
      CAIRN_RETURN_IF_ERROR(EndEpoch());
      StartEpochOf(position());
    }
    CAIRN_RETURN_IF_ERROR(TrainStep());
  }
  return absl::OkStatus();
}

bool Trainer::done() const {
  if (parts_.client.finished()) return true;
  // Without a number of steps, an asynchronous worker goes through its own part of each epoch, at its own
  // pace.
  return !sync() && parts_.options.train_steps == 0 &&
         position_ >= parts_.options.epochs * loader_.batches_per_epoch();
}

absl::Status Trainer::TrainStep() {
  client::TrainingClient& client = parts_.client;
  const data::Batch& batch = loader_.Next(position());
  ++position_;
  if (batch.examples == 0 && !sync()) return absl::OkStatus();  // nothing to say, and nobody waits for it

  const auto elements = static_cast<size_t>(parts_.data.train->example_shape().num_elements());
  const auto targets = static_cast<size_t>(parts_.data.train->num_targets());
  const auto examples = static_cast<size_t>(batch.examples);
  const nn::BatchView view = {
      .examples = batch.examples,
      .inputs = batch.inputs.span().subspan(0, examples * elements),
      .targets = batch.targets.span().subspan(0, examples * targets),
      .weights = batch.weights.span().subspan(0, parts_.data.train->weighted() ? examples : 0),
      .seed = StepSeed(parts_.options.seed, parts_.sampler.worker, batch.epoch, batch.index)};

  client.BeginStep(gradients_.span(), batch.examples);
  CAIRN_ASSIGN_OR_RETURN(
      const nn::BatchResult result,
      parts_.replica.ForwardBackward(client.parameters(), view, gradients_.span(),
                                     [&client](int variable) { client.Announce(variable); }));
  if (!std::isfinite(result.sums.loss)) {
    return absl::InvalidArgumentError(absl::StrCat("the loss is ", result.sums.loss, " at version ",
                                                   client.version(), NotFinite(client.parameters())));
  }
  CAIRN_RETURN_IF_ERROR(client.FinishStep().status());

  if (!chief()) return absl::OkStatus();
  metrics_.Update(view, result);
  parts_.progress->Update(batch.index + 1, [this] { return metrics_.Values(); });
  return absl::OkStatus();
}

std::string Trainer::NotFinite(absl::Span<const float> parameters) const {
  for (const nn::ModelVariable& variable : parts_.model.variables()) {
    const auto values = parameters.subspan(static_cast<size_t>(variable.offset),
                                           static_cast<size_t>(variable.shape.num_elements()));
    const auto bad =
        std::find_if_not(values.begin(), values.end(), [](float value) { return std::isfinite(value); });
    if (bad != values.end()) return absl::StrCat(", where '", variable.name, "' holds ", *bad);
  }
  float largest = 0;
  std::string name;
  for (const nn::ModelVariable& variable : parts_.model.variables()) {
    for (int64_t i = 0; i < variable.shape.num_elements(); ++i) {
      const float size = std::abs(parameters[static_cast<size_t>(variable.offset + i)]);
      if (size <= largest) continue;
      largest = size;
      name = variable.name;
    }
  }
  return absl::StrCat(", where the largest parameter, of '", name, "', is ", largest);
}

void Trainer::StartEpochOf(int64_t position) {
  epoch_ = position / loader_.batches_per_epoch();
  metrics_.Reset();
  if (!chief()) return;
  const int64_t steps_in_all = sync() || parts_.options.train_steps > 0
                                   ? parts_.job.final_version()
                                   : parts_.options.epochs * loader_.batches_per_epoch();
  const int64_t epochs = (steps_in_all + loader_.batches_per_epoch() - 1) / loader_.batches_per_epoch();
  parts_.progress->StartEpoch(epoch_ + 1, std::max(epochs, epoch_ + 1), loader_.batches_per_epoch());
}

absl::Status Trainer::EndEpoch() {
  if (epoch_ < 0 || !chief()) return absl::OkStatus();
  CAIRN_ASSIGN_OR_RETURN(const ShownMetrics metrics, AllMetrics());
  parts_.progress->EndEpoch(metrics);
  return absl::OkStatus();
}

absl::StatusOr<ShownMetrics> Trainer::AllMetrics() {
  ShownMetrics metrics = metrics_.Values();
  if (evaluator_ == nullptr) return metrics;
  CAIRN_ASSIGN_OR_RETURN(const nn::MetricValues validation, Evaluate());
  for (const auto& [name, value] : validation) metrics.emplace_back(absl::StrCat("val_", name), value);
  return metrics;
}

absl::StatusOr<nn::MetricValues> Trainer::Evaluate() {
  if (evaluated_version_ != parts_.client.version()) {
    CAIRN_ASSIGN_OR_RETURN(evaluation_,
                           evaluator_->Run(parts_.client.parameters(), [this] { return stop_.load(); }));
    evaluated_version_ = parts_.client.version();
  }
  return evaluation_;
}

absl::StatusOr<Summary> Trainer::WrapUp() {
  client::TrainingClient& client = parts_.client;
  CAIRN_RETURN_IF_ERROR(client.WaitForOthers(Seconds(parts_.options.step_timeout_seconds)));
  // What the others pushed after our last step. The last epoch's evaluation is of the final parameters.
  CAIRN_RETURN_IF_ERROR(client.Pull());
  CAIRN_RETURN_IF_ERROR(EndEpoch());
  CAIRN_ASSIGN_OR_RETURN(const v1::Counters counters, client.ServerCounters());

  Summary summary;
  summary.mode = parts_.options.mode;
  summary.ps = parts_.job.servers_size();
  summary.workers = parts_.job.workers_size();
  summary.batch_size = parts_.options.batch_size;
  summary.global_step = client.version();
  summary.epochs = epoch_ + 1;
  summary.examples = counters.examples();
  summary.seconds = std::chrono::duration<double>(parts_.clock.Now() - start_).count();
  summary.examples_per_second = static_cast<double>(summary.examples) / summary.seconds;
  CAIRN_ASSIGN_OR_RETURN(summary.metrics, AllMetrics());
  summary.gradients_accepted = counters.accepted();
  summary.gradients_stale = counters.stale();
  summary.gradients_duplicate = counters.duplicate();
  summary.staleness_max = counters.staleness_max();
  summary.device = parts_.device.name();
  summary.parameters = parts_.model.num_parameters();
  summary.parameters_sha256 = ParametersSha256(parts_.model, client.parameters());

  client.Leave(v1::LEAVE_REASON_FINISHED, "");
  CAIRN_RETURN_IF_ERROR(client.Finish());
  return summary;
}

}  // namespace cairn::worker
