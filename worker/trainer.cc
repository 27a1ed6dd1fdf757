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
#include "worker/client/job_end.h"
#include "worker/digest.h"
#include "worker/job.h"

namespace cairn::worker {
namespace {

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
// A question to ps/0.
constexpr auto kTellEvery = std::chrono::seconds(2);
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
      loader_(*parts.data.train, parts.sampler, /*depth=*/2, parts.trace),
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
  if (parts_.board != nullptr) parts_.board->End(result.ok());
  if (result.ok()) return result;
  absl::Status status = result.status();
  if (client::IsOver(status)) {  // it went on without us: we were paused, say, or came late
    if (chief()) return absl::UnavailableError(absl::StrCat(status.message(), ", and it was not this chief who ended it"));
    LogInfo(status.message());
    return Summary{};
  }
  if (stop_) {
    status = absl::CancelledError("stopped by a signal");
    if (chief()) LogIfBad(parts_.snapshots->SaveNow(parts_.client, kSaveAtStop));
  }
  parts_.client.Leave(ReasonFor(status), std::string(status.message()));
  return status;
}

absl::StatusOr<Summary> Trainer::TrainAndMend() {
  client::Exchange& client = parts_.client;
  int mendings = 0;  // without a step in between
  absl::Status entered = Enter();
  for (;;) {
    const int64_t entered_at = client.version();
    absl::StatusOr<Summary> result = entered.ok() ? TrainToTheEnd() : absl::StatusOr<Summary>(entered);
    if (result.ok() || stop_ || !client.CanReconnectAfter(result.status())) return result;
    mendings = client.version() > entered_at ? 0 : mendings + 1;
    if (mendings > kMostMendings) return result;
    LogWarning(result.status().message(), "; joining again");
    if (parts_.meters != nullptr) parts_.meters->rejoins.Add();
    entered = Reenter();
  }
}

absl::Status Trainer::Enter() {
  client::Exchange& client = parts_.client;
  CAIRN_RETURN_IF_ERROR(client.WaitReady(parts_.job));
  CAIRN_RETURN_IF_ERROR(client.Join());
  if (start_ == TimePoint()) {
    start_ = parts_.clock.Now();
    if (chief()) {
      CAIRN_ASSIGN_OR_RETURN(const v1::Counters counters, client.ServerCounters());
      examples_before_ = counters.examples();
      last_counters_ = counters;
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
    if (dynamic()) CAIRN_RETURN_IF_ERROR(NoteWork());
    if (done()) break;
    if (const int64_t epoch = NextEpoch(); dynamic() ? epoch > epoch_ : epoch != epoch_) {
      CAIRN_RETURN_IF_ERROR(EndEpoch());
      if (done()) break;
      StartEpoch(epoch);
    }
    CAIRN_RETURN_IF_ERROR(TrainStep());
    if (chief()) parts_.snapshots->AfterStep(parts_.client);
  }
  if (chief()) return WrapUp();
  parts_.client.Leave(v1::LEAVE_REASON_FINISHED, "");
  // Until the chief has saved it, a server that is lost takes what we did with it, and we do it again.
  CAIRN_RETURN_IF_ERROR(parts_.client.AwaitEnd());
  return Summary{};
}

bool Trainer::done() const {
  if (parts_.client.finished()) return true;
  if (dynamic()) return false;
  // Without a number of steps, an asynchronous worker goes through its own part of each epoch, at its own
  // pace.
  return !sync() && parts_.options.train_steps == 0 &&
         position_ >= parts_.options.epochs * loader_.batches_per_epoch();
}

absl::Status Trainer::NoteWork() {
  client::Exchange& client = parts_.client;
  if (client.work().tickets().empty()) CAIRN_RETURN_IF_ERROR(client.AwaitWork());
  const int members = client.work().members();
  if (chief() && members_ > 0 && members != members_)
    LogInfo(members, " workers take part now, ", members_, " before");
  members_ = members;
  most_members_ = std::max(most_members_, members);
  return absl::OkStatus();
}

int64_t Trainer::NextEpoch() const {
  if (dynamic()) return parts_.client.work().tickets(0).epoch();
  return position() / loader_.batches_per_epoch();
}

const data::Batch& Trainer::NextBatch() {
  if (!dynamic()) {
    const data::Batch& batch = loader_.Next(position());
    ++position_;
    return batch;
  }
  const auto& tickets = parts_.client.work().tickets();
  std::vector<data::Run> runs;
  for (const v1::Ticket& ticket : tickets) runs.push_back({ticket.epoch(), ticket.first(), ticket.count()});
  position_ = runs[0].epoch * parts_.sampler.num_examples + runs[0].first;
  return loader_.Next(runs[0], absl::MakeSpan(runs).subspan(1));
}

absl::Status Trainer::TrainStep() {
  client::Exchange& client = parts_.client;
  if (parts_.trace != nullptr) parts_.trace->AtStep(client.version() + 1);
  const TraceSpan step(parts_.trace, TraceLane::kStep, "step");
  const TimePoint began = parts_.clock.Now();
  TraceSpan input(parts_.trace, TraceLane::kStep, "input");
  const data::Batch& batch = NextBatch();
  input.End();
  const TimePoint loaded = parts_.clock.Now();
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
  shown_steps_ = std::max(shown_steps_, std::min(batch.index + 1, loader_.batches_per_epoch()));

  TraceSpan compute(parts_.trace, TraceLane::kStep, "compute");
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
  compute.End();
  Pass("computed");
  const TimePoint computed = parts_.clock.Now();
  TraceSpan awaiting(parts_.trace, TraceLane::kStep, "answer");
  CAIRN_ASSIGN_OR_RETURN(const client::StepResult answer, client.FinishStep());
  awaiting.End();
  Pass("answered");
  if (parts_.meters != nullptr && batch.examples > 0) {
    parts_.meters->OnStep({.examples = batch.examples,
                           .input_seconds = ToSeconds(loaded - began),
                           .compute_seconds = ToSeconds(computed - loaded),
                           .answer_seconds = ToSeconds(parts_.clock.Now() - computed),
                           .loss = result.sums.loss / static_cast<double>(batch.examples),
                           .outcome = answer.outcome,
                           .duplicate = answer.duplicate,
                           .staleness = answer.staleness,
                           .version = client.version(),
                           .epoch = epoch_ + 1});
  }

  if (!chief()) return absl::OkStatus();
  const TraceSpan report(parts_.trace, TraceLane::kStep, "report");
  metrics_.Update(view, result);
  if (parts_.progress->redraws() && parts_.clock.Now() >= tell_at_) TellOfCluster();
  parts_.progress->Update(shown_steps_, [this] { return metrics_.Values(); });
  if (parts_.board != nullptr && parts_.board->WantsStep(client.version())) {
    parts_.board->OnStep(client.version(), metrics_.Values());
  }
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

void Trainer::StartEpoch(int64_t epoch) {
  epoch_ = epoch;
  shown_steps_ = 0;
  metrics_.Reset();
  if (!chief()) return;
  epoch_ended_ = false;
  epoch_counters_ = last_counters_;
  epoch_start_ = parts_.clock.Now();
  tell_at_ = epoch_start_ + kTellEvery;
  int64_t steps_in_all = parts_.options.epochs * loader_.batches_per_epoch();
  if (parts_.options.train_steps > 0 || (sync() && !dynamic())) steps_in_all = parts_.job.final_version();
  // A step of the line is then one batch, and there are as many in an update as workers now.
  if (parts_.options.train_steps > 0 && sync() && dynamic()) steps_in_all *= members_;
  const int64_t epochs = (steps_in_all + loader_.batches_per_epoch() - 1) / loader_.batches_per_epoch();
  if (parts_.board != nullptr) parts_.board->Begin(epoch_, parts_.client.version(), examples_before_);
  parts_.progress->StartEpoch(epoch_ + 1, std::max(epochs, epoch_ + 1), loader_.batches_per_epoch());
}

absl::Status Trainer::EndEpoch() {
  if (std::exchange(epoch_ended_, true)) return absl::OkStatus();
  // The batches after the chief's last one were others'.
  if (dynamic() && !stop_)
    parts_.progress->Update(loader_.batches_per_epoch(), [this] { return metrics_.Values(); });
  CAIRN_ASSIGN_OR_RETURN(const ShownMetrics metrics, AllMetrics());
  TellOfCluster();
  parts_.progress->EndEpoch(metrics);
  if (epoch_ <= last_ended_epoch_) return absl::OkStatus();
  last_ended_epoch_ = epoch_;
  if (parts_.board != nullptr) RecordEpoch(metrics);
  CAIRN_ASSIGN_OR_RETURN(const Callbacks::Orders orders,
                         parts_.callbacks->OnEpochEnd(epoch_, metrics, parts_.client.parameters()));
  return CarryOut(orders);
}

void Trainer::TellOfCluster() {
  const TimePoint now = parts_.clock.Now();
  tell_at_ = now + kTellEvery;
  const auto counters = parts_.client.ServerCounters();
  if (!counters.ok()) return;  // a server is gone: the next step finds out
  last_counters_ = *counters;
  parts_.progress->SetCluster(
      {.examples_per_second =
           static_cast<double>(counters->examples() - epoch_counters_.examples()) / ToSeconds(now - epoch_start_),
       .stale = counters->stale() - epoch_counters_.stale(),
       .refused = counters->rejected() - epoch_counters_.rejected()});
}

void Trainer::RecordEpoch(const ShownMetrics& metrics) {
  const auto counters = parts_.client.ServerCounters();
  const auto rate = parts_.client.LearningRate();
  if (!counters.ok() || !rate.ok()) return;  // a server is gone: the next step finds out
  parts_.board->OnEpochEnd({.epoch = epoch_,
                            .version = parts_.client.version(),
                            .examples = counters->examples(),
                            .gradients_stale = counters->stale(),
                            .gradients_rejected = counters->rejected(),
                            .staleness_max = counters->staleness_max(),
                            .learning_rate = *rate,
                            .metrics = metrics,
                            .parameters = parts_.client.parameters(),
                            .last_gradients = gradients_.span()});
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
    const TraceSpan span(parts_.trace, TraceLane::kEvaluate, "evaluate", {.step = parts_.client.version()});
    CAIRN_ASSIGN_OR_RETURN(evaluation_,
                           evaluator_->Run(parts_.client.parameters(), [this] { return stop_.load(); }));
    evaluated_version_ = parts_.client.version();
  }
  return evaluation_;
}

absl::Status Trainer::FillInDeviations(Summary& summary) {
  if (dynamic()) {
    CAIRN_ASSIGN_OR_RETURN(const v1::DataPosition used, parts_.client.UsedData());
    summary.examples_missed = used.missed();
    summary.examples_repeated = used.repeated();
    summary.epochs = (used.next() + parts_.sampler.num_examples - 1) / parts_.sampler.num_examples;
    summary.workers = members_;
    summary.workers_max = most_members_;
    return absl::OkStatus();
  }
  int64_t position = parts_.client.version();
  if (!sync()) {
    if (parts_.options.train_steps > 0) return absl::OkStatus();
    position = parts_.options.epochs * loader_.batches_per_epoch();
  }
  summary.examples_missed = data::Sampler(parts_.sampler).ExamplesBefore(position) - summary.examples;
  return absl::OkStatus();
}

absl::StatusOr<Summary> Trainer::WrapUp() {
  client::Exchange& client = parts_.client;
  const Duration limit = FromSeconds(parts_.options.step_timeout_seconds);
  // No update comes any more: from here on nothing that a server loses has to be computed again.
  if (sync()) CAIRN_RETURN_IF_ERROR(parts_.snapshots->SaveNow(client, limit));
  CAIRN_RETURN_IF_ERROR(client.WaitForOthers(limit));
  // ps/0 alone knows when the data is used up.
  if (dynamic() && parts_.job.mode() == v1::MODE_ASYNC) CAIRN_RETURN_IF_ERROR(client.EndTraining());
  // What the others pushed after our last step. The last epoch's evaluation is of the final parameters.
  CAIRN_RETURN_IF_ERROR(client.Pull());
  CAIRN_RETURN_IF_ERROR(parts_.snapshots->SaveNow(client, limit));
  CAIRN_RETURN_IF_ERROR(EndEpoch());
  CAIRN_RETURN_IF_ERROR(RestoreBest());
  CAIRN_ASSIGN_OR_RETURN(const v1::Counters counters, client.ServerCounters());

  Summary summary;
  summary.mode = parts_.options.mode;
  summary.ps = parts_.job.servers_size();
  summary.workers = summary.workers_max = parts_.job.workers_size();
  summary.batch_size = parts_.options.batch_size;
  summary.global_step = client.version();
  summary.epochs = (position() + loader_.batches_per_epoch() - 1) / loader_.batches_per_epoch();
  summary.examples = counters.examples();
  CAIRN_RETURN_IF_ERROR(FillInDeviations(summary));
  summary.seconds = ToSeconds(parts_.clock.Now() - start_);
  summary.examples_per_second = static_cast<double>(summary.examples - examples_before_) / summary.seconds;
  CAIRN_ASSIGN_OR_RETURN(summary.metrics, AllMetrics());
  summary.gradients_accepted = counters.accepted();
  summary.gradients_stale = counters.stale();
  summary.gradients_duplicate = counters.duplicate();
  summary.staleness_max = counters.staleness_max();
  summary.staleness_histogram.assign(counters.staleness_histogram().begin(),
                                     counters.staleness_histogram().end());
  if (parts_.meters != nullptr) {
    const client::WireMeters& wire = parts_.meters->wire;
    summary.push_bytes = wire.push_bytes.value();
    summary.push_bytes_float32 = wire.push_float32_bytes.value();
    summary.pull_bytes = wire.pull_bytes.value();
    summary.pull_bytes_float32 = wire.pull_float32_bytes.value();
    summary.gradient_error = wire.error();
  }
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
