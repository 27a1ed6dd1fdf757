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

// A second time without a step in between something is wrong that joining again does not mend; servers that
// are restarted several times need some more.
constexpr int kMostMendings = 10;
// The launcher, and Kubernetes likewise, waits 10 s or more before it kills.
constexpr auto kSaveAtStop = std::chrono::seconds(5);

void LogIfBad(const absl::Status& status) {
  if (!status.ok()) LogWarning(status.message());
}

// What a worker that could not go on tells the servers: only a permanent failure ends the job for all.
v1::LeaveReason ReasonFor(const absl::Status& status) {
  return ExitCodeOf(status) == ExitCode::kFailure && !absl::IsCancelled(status) ? v1::LEAVE_REASON_FAILED
                                                                                : v1::LEAVE_REASON_STOPPED;
}

}  // namespace

Trainer::Trainer(const Parts& parts)
    : parts_(parts),
      run_id_(DrawRunId()),
      loader_(*parts.data.train, parts.sampler),
      gradients_(parts.model.num_parameters()),
      metrics_(parts.metrics) {
  if (chief() && parts_.options.validation && parts_.data.validation != nullptr) {
    evaluator_ = std::make_unique<Evaluator>(*parts_.data.validation, parts_.replica, parts_.metrics);
  }
  PinBuffers();
}

Trainer::~Trainer() {
  parts_.replica.Unpin();
}

void Trainer::PinBuffers() {
  std::vector<absl::Span<const float>> buffers = loader_.buffers();
  buffers.push_back(gradients_.span());
  for (const absl::Span<const float> buffer : parts_.client.parameter_buffers()) buffers.push_back(buffer);
  // Smaller ones share their page with others, and are copied in no time.
  constexpr size_t kSmallestFloats = 1024;
  absl::Status first;
  for (const absl::Span<const float> buffer : buffers) {
    if (buffer.size() >= kSmallestFloats) first.Update(parts_.replica.Pin(buffer));
  }
  if (!first.ok()) {
    LogWarning("copies from and to ", parts_.device, " are slower than they could be: ", first.message());
  }
}

void Trainer::Stop() {
  stop_ = true;
  parts_.client.Interrupt(absl::CancelledError("stopped by a signal"));
}

absl::Status Trainer::Initialise() {
  v1::Job job = parts_.job;
  job.set_run_id(run_id_);
  return parts_.client.Initialise(job, *parts_.snapshots);
}

absl::StatusOr<Summary> Trainer::Run() {
  auto result = TrainAndMend();
  if (result.ok()) return result;
  absl::Status status = result.status();
  if (stop_) {
    status = absl::CancelledError("stopped by a signal");
    if (chief()) LogIfBad(parts_.snapshots->SaveNow(parts_.client, kSaveAtStop));
  }
  parts_.client.Leave(ReasonFor(status), std::string(status.message()));
  return status;
}

absl::StatusOr<Summary> Trainer::TrainAndMend() {
  client::TrainingClient& client = parts_.client;
  int mendings = 0;  // without a step in between
  absl::Status entered = Enter();
  for (;;) {
    const int64_t entered_at = client.version();
    absl::StatusOr<Summary> result = entered.ok() ? TrainToTheEnd() : absl::StatusOr<Summary>(entered);
    if (result.ok() || stop_ || !client.CanReconnectAfter(result.status())) return result;
    mendings = client.version() > entered_at ? 0 : mendings + 1;
    if (mendings > kMostMendings) return result;
    LogWarning(result.status().message(), "; joining again");
    entered = Reenter();
  }
}

absl::Status Trainer::Enter() {
  client::TrainingClient& client = parts_.client;
  CAIRN_RETURN_IF_ERROR(client.WaitReady(parts_.job));
  CAIRN_RETURN_IF_ERROR(client.Join());
  if (start_ == TimePoint()) {
    start_ = parts_.clock.Now();
    if (chief()) {
      CAIRN_ASSIGN_OR_RETURN(const v1::Counters counters, client.ServerCounters());
      examples_before_ = counters.examples();
    }
  }
  LogInfo("joined the job at step ", client.version());
  Pass("joined");
  // Of bounded staleness, a worker that comes back is where the slowest is, at least.
  // Clocks count up to the same end for all: one that stopped short of it would be waited for.
  position_ = ssp() ? client.clock_at_join() : client.position();
  epoch_ = -1;
  epoch_ended_ = true;
  evaluated_version_ = -1;
  return AgreeOnLearningRate();
}

absl::Status Trainer::Reenter() {
  CAIRN_RETURN_IF_ERROR(parts_.client.Reconnect());
  if (chief()) CAIRN_RETURN_IF_ERROR(Initialise());
  return Enter();
}

absl::StatusOr<Summary> Trainer::TrainToTheEnd() {
  while (!done()) {
    if (position() / loader_.batches_per_epoch() != epoch_) {
      CAIRN_RETURN_IF_ERROR(EndEpoch());
      if (done()) break;
      StartEpochOf(position());
    }
    CAIRN_RETURN_IF_ERROR(TrainStep());
    if (chief()) parts_.snapshots->AfterStep(parts_.client);
  }
  if (chief()) return WrapUp();
  parts_.client.Leave(v1::LEAVE_REASON_FINISHED, "");
  return Summary{};
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
  // Nothing to say, and nobody waits for it.
  if (batch.examples == 0 && !sync() && !ssp()) return absl::OkStatus();

  const auto elements = static_cast<size_t>(parts_.data.train->example_shape().num_elements());
  const auto targets = static_cast<size_t>(parts_.data.train->num_targets());
  const auto examples = static_cast<size_t>(batch.examples);
  const nn::BatchView view = {
      .examples = batch.examples,
      .inputs = batch.inputs.span().subspan(0, examples * elements),
      .targets = batch.targets.span().subspan(0, examples * targets),
      .weights = batch.weights.span().subspan(0, parts_.data.train->weighted() ? examples : 0),
      .seed = StepSeed(parts_.options.seed, parts_.sampler.worker, batch.epoch, batch.index)};

  client.BeginStep(gradients_.span(), batch.examples, position_);
  CAIRN_ASSIGN_OR_RETURN(
      const nn::BatchResult result,
      parts_.replica.ForwardBackward(client.parameters(), view, gradients_.span(), [&](int variable) {
        client.Announce(variable);
        Pass("announced");
      }));
  if (!std::isfinite(result.sums.loss)) {
    return absl::InvalidArgumentError(absl::StrCat("the loss is ", result.sums.loss, " at version ",
                                                   client.version(), NotFinite(client.parameters())));
  }
  Pass("computed");
  CAIRN_RETURN_IF_ERROR(client.FinishStep().status());
  Pass("answered");

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
  epoch_ended_ = false;
  const int64_t steps_in_all = sync() || parts_.options.train_steps > 0
                                   ? parts_.job.final_version()
                                   : parts_.options.epochs * loader_.batches_per_epoch();
  const int64_t epochs = (steps_in_all + loader_.batches_per_epoch() - 1) / loader_.batches_per_epoch();
  parts_.progress->StartEpoch(epoch_ + 1, std::max(epochs, epoch_ + 1), loader_.batches_per_epoch());
}

absl::Status Trainer::EndEpoch() {
  if (std::exchange(epoch_ended_, true)) return absl::OkStatus();
  CAIRN_ASSIGN_OR_RETURN(const ShownMetrics metrics, AllMetrics());
  parts_.progress->EndEpoch(metrics);
  if (epoch_ <= last_ended_epoch_) return absl::OkStatus();
  last_ended_epoch_ = epoch_;
  CAIRN_ASSIGN_OR_RETURN(const Callbacks::Orders orders,
                         parts_.callbacks->OnEpochEnd(epoch_, metrics, parts_.client.parameters()));
  return CarryOut(orders);
}

absl::Status Trainer::CarryOut(const Callbacks::Orders& orders) {
  for (const std::string& message : orders.messages) parts_.progress->Say(message);
  if (parts_.client.finished()) return absl::OkStatus();  // after the last epoch nothing is left to change
  if (orders.learning_rate.has_value()) {
    CAIRN_RETURN_IF_ERROR(parts_.client.SetLearningRate(*orders.learning_rate));
  }
  if (!orders.stop) return absl::OkStatus();
  CAIRN_RETURN_IF_ERROR(parts_.client.EndTraining());
  evaluated_version_ = -1;  // averages of the parameters may have taken their place
  return absl::OkStatus();
}

absl::Status Trainer::AgreeOnLearningRate() {
  if (!chief() || !parts_.callbacks->needs_learning_rate()) return absl::OkStatus();
  CAIRN_ASSIGN_OR_RETURN(const float rate, parts_.client.LearningRate());
  parts_.callbacks->set_learning_rate(rate);
  return parts_.client.SetLearningRate(rate);
}

absl::Status Trainer::RestoreBest() {
  if (parts_.callbacks->best_parameters().empty()) return absl::OkStatus();
  parts_.progress->Say(absl::StrCat(
      "Restoring model weights from the end of the best epoch: ", *parts_.callbacks->best_epoch(), "."));
  CAIRN_RETURN_IF_ERROR(parts_.client.Write(parts_.callbacks->best_parameters()));
  evaluated_version_ = -1;
  return absl::OkStatus();
}

absl::StatusOr<ShownMetrics> Trainer::AllMetrics() {
  ShownMetrics metrics;
  if (epoch_ >= 0) metrics = metrics_.Values();  // else there was nothing left to train
  if (evaluator_ != nullptr) {
    CAIRN_ASSIGN_OR_RETURN(const nn::MetricValues validation, Evaluate());
    for (const auto& [name, value] : validation) metrics.emplace_back(absl::StrCat("val_", name), value);
  }
  if (const auto rate = parts_.callbacks->learning_rate()) metrics.emplace_back("learning_rate", *rate);
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
  const Duration limit = Seconds(parts_.options.step_timeout_seconds);
  // No update comes any more: from here on nothing that a server loses has to be computed again.
  if (sync()) CAIRN_RETURN_IF_ERROR(parts_.snapshots->SaveNow(client, limit));
  CAIRN_RETURN_IF_ERROR(client.WaitForOthers(limit));
  // What the others pushed after our last step. The last epoch's evaluation is of the final parameters.
  CAIRN_RETURN_IF_ERROR(client.Pull());
  CAIRN_RETURN_IF_ERROR(parts_.snapshots->SaveNow(client, limit));
  CAIRN_RETURN_IF_ERROR(EndEpoch());
  CAIRN_RETURN_IF_ERROR(RestoreBest());
  CAIRN_ASSIGN_OR_RETURN(const v1::Counters counters, client.ServerCounters());

  Summary summary;
  summary.mode = parts_.options.mode;
  summary.ps = parts_.job.servers_size();
  summary.workers = parts_.job.workers_size();
  summary.batch_size = parts_.options.batch_size;
  summary.global_step = client.version();
  summary.epochs = (position() + loader_.batches_per_epoch() - 1) / loader_.batches_per_epoch();
  summary.examples = counters.examples();
  if (sync()) {
    summary.examples_missed =
        data::Sampler(parts_.sampler).ExamplesBefore(client.version()) - summary.examples;
  } else if (parts_.options.train_steps == 0) {
    summary.examples_missed =
        data::Sampler(parts_.sampler).ExamplesBefore(parts_.options.epochs * loader_.batches_per_epoch()) -
        summary.examples;
  }
  summary.seconds = std::chrono::duration<double>(parts_.clock.Now() - start_).count();
  summary.examples_per_second = static_cast<double>(summary.examples - examples_before_) / summary.seconds;
  CAIRN_ASSIGN_OR_RETURN(summary.metrics, AllMetrics());
  summary.gradients_accepted = counters.accepted();
  summary.gradients_stale = counters.stale();
  summary.gradients_duplicate = counters.duplicate();
  summary.staleness_max = counters.staleness_max();
  summary.staleness_histogram.assign(counters.staleness_histogram().begin(),
                                     counters.staleness_histogram().end());
  summary.best_epoch = parts_.callbacks->best_epoch();
  summary.device = parts_.device;
  summary.parameters = parts_.model.num_parameters();
  summary.parameters_sha256 = ParametersSha256(parts_.model, client.parameters());

  const absl::Status published = parts_.publish(summary);
  client.Leave(v1::LEAVE_REASON_FINISHED, "");
  CAIRN_RETURN_IF_ERROR(client.Finish());
  CAIRN_RETURN_IF_ERROR(published);
  return summary;
}

}  // namespace cairn::worker
