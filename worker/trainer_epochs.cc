// The chief's work at the end of epochs and of the job: metrics, callbacks, the summary.
#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/core/status.h"
#include "common/core/words.h"
#include "common/net/final_version.h"
#include "worker/digest.h"
#include "worker/trainer.h"

namespace cairn::worker {
namespace {

// The interval between queries to ps/0.
constexpr auto kReportEvery = std::chrono::seconds(2);

}  // namespace

void Trainer::StartEpoch(int64_t epoch) {
  epoch_ = epoch;
  shown_steps_ = 0;
  metrics_.Reset();
  if (!chief()) return;
  epoch_ended_ = false;
  epoch_counters_ = last_counters_;
  epoch_start_ = deps_.clock.Now();
  report_at_ = epoch_start_ + kReportEvery;
  int64_t steps_in_all = deps_.options.epochs * loader_.batches_per_epoch();
  if (deps_.options.train_steps > 0 || (sync() && !dynamic())) steps_in_all = deps_.job.final_version();
  // The progress line counts batches, and each update takes one batch from every current member.
  if (deps_.options.train_steps > 0 && sync() && dynamic()) steps_in_all *= members_;
  const int64_t epochs = (steps_in_all + loader_.batches_per_epoch() - 1) / loader_.batches_per_epoch();
  if (deps_.tensorboard != nullptr)
    deps_.tensorboard->Begin(epoch_, deps_.client.version(), examples_before_);
  deps_.progress->StartEpoch(epoch_ + 1, std::max(epochs, epoch_ + 1), loader_.batches_per_epoch());
}

absl::Status Trainer::EndEpoch() {
  if (std::exchange(epoch_ended_, true)) return absl::OkStatus();
  // With dynamic sharding, other workers computed the batches that followed the chief's last one.
  if (dynamic() && !stop_)
    deps_.progress->Update(loader_.batches_per_epoch(), [this] { return metrics_.Values(); });
  const auto all = AllMetrics();
  if (!all.ok()) {
    // Training was stopped during the evaluation; the resumed run repeats it in EvaluateInterruptedEpoch().
    if (stop_ && deps_.tensorboard != nullptr && epoch_ > last_ended_epoch_) RecordEpoch(metrics_.Values());
    return all.status();
  }
  const ShownMetrics& metrics = *all;
  ReportCluster();
  deps_.progress->EndEpoch(metrics);
  if (epoch_ <= last_ended_epoch_) return absl::OkStatus();
  last_ended_epoch_ = epoch_;
  if (deps_.tensorboard != nullptr) RecordEpoch(metrics);
  CAIRN_ASSIGN_OR_RETURN(const Callbacks::Orders orders,
                         deps_.callbacks->OnEpochEnd(epoch_, metrics, deps_.client.parameters()));
  return CarryOut(orders);
}

absl::StatusOr<std::optional<int64_t>> Trainer::EpochJustTrained() {
  int64_t done = position(), epoch_length = loader_.batches_per_epoch();
  if (dynamic()) {
    CAIRN_ASSIGN_OR_RETURN(const v1::DataPosition used, deps_.client.UsedData());
    if (used.open_size() > 0) return std::nullopt;
    done = used.next();
    epoch_length = deps_.sampler.num_examples;
  }
  if (done == 0 || done % epoch_length != 0) return std::nullopt;
  return done / epoch_length - 1;
}

absl::Status Trainer::EvaluateInterruptedEpoch() {
  if (deps_.tensorboard == nullptr || evaluator_ == nullptr) return absl::OkStatus();
  CAIRN_ASSIGN_OR_RETURN(const std::optional<int64_t> epoch, EpochJustTrained());
  if (!epoch.has_value() || *epoch <= last_ended_epoch_ || !deps_.tensorboard->LacksValidation(*epoch)) {
    return absl::OkStatus();
  }
  CAIRN_ASSIGN_OR_RETURN(const nn::MetricValues validation, Evaluate());
  deps_.tensorboard->AddValidation(*epoch, deps_.client.version(), {validation.begin(), validation.end()});
  last_ended_epoch_ = *epoch;
  std::string text = absl::StrCat("Epoch ", *epoch + 1, ", evaluated now");
  for (const auto& [name, value] : validation) absl::StrAppendFormat(&text, " - val_%s: %.4f", name, value);
  deps_.progress->Say(text);
  return absl::OkStatus();
}

void Trainer::ReportCluster() {
  const TimePoint now = deps_.clock.Now();
  report_at_ = now + kReportEvery;
  const auto counters = deps_.client.ServerCounters();
  if (!counters.ok()) return;  // a server failed: the next step reports it
  last_counters_ = *counters;
  deps_.progress->SetCluster(
      {.examples_per_second = static_cast<double>(counters->examples() - epoch_counters_.examples()) /
                              ToSeconds(now - epoch_start_),
       .stale = counters->stale() - epoch_counters_.stale(),
       .refused = counters->rejected() - epoch_counters_.rejected()});
}

void Trainer::RecordEpoch(const ShownMetrics& metrics) {
  const auto counters = deps_.client.ServerCounters();
  const auto rate = deps_.client.LearningRate();
  if (!counters.ok() || !rate.ok()) return;  // a server failed: the next step reports it
  deps_.tensorboard->OnEpochEnd({.epoch = epoch_,
                                 .version = deps_.client.version(),
                                 .examples = counters->examples(),
                                 .gradients_stale = counters->stale(),
                                 .gradients_rejected = counters->rejected(),
                                 .staleness_max = counters->staleness_max(),
                                 .learning_rate = *rate,
                                 .metrics = metrics,
                                 .parameters = deps_.client.parameters(),
                                 .last_gradients = gradients_.span()});
}

absl::Status Trainer::CarryOut(const Callbacks::Orders& orders) {
  for (const std::string& message : orders.messages) deps_.progress->Say(message);
  if (deps_.client.finished()) return absl::OkStatus();  // after the last epoch, orders have no effect
  if (orders.learning_rate.has_value()) {
    CAIRN_RETURN_IF_ERROR(deps_.client.SetLearningRate(*orders.learning_rate));
  }
  if (!orders.stop) return absl::OkStatus();
  CAIRN_RETURN_IF_ERROR(deps_.client.EndTraining());
  evaluated_version_ = -1;  // moving averages may have replaced the parameters
  return absl::OkStatus();
}

absl::Status Trainer::AgreeOnLearningRate() {
  if (!chief() || !deps_.callbacks->needs_learning_rate()) return absl::OkStatus();
  CAIRN_ASSIGN_OR_RETURN(const float rate, deps_.client.LearningRate());
  deps_.callbacks->set_learning_rate(rate);
  return deps_.client.SetLearningRate(rate);
}

absl::Status Trainer::RestoreBest() {
  if (deps_.callbacks->best_parameters().empty()) return absl::OkStatus();
  deps_.progress->Say(absl::StrCat(
      "Restoring model weights from the end of the best epoch: ", *deps_.callbacks->best_epoch(), "."));
  CAIRN_RETURN_IF_ERROR(deps_.client.Write(deps_.callbacks->best_parameters()));
  evaluated_version_ = -1;
  return absl::OkStatus();
}

absl::StatusOr<ShownMetrics> Trainer::AllMetrics() {
  ShownMetrics metrics;
  if (epoch_ >= 0) metrics = metrics_.Values();  // otherwise there was nothing left to train
  if (evaluator_ != nullptr) {
    CAIRN_ASSIGN_OR_RETURN(const nn::MetricValues validation, Evaluate());
    for (const auto& [name, value] : validation) metrics.emplace_back(absl::StrCat("val_", name), value);
  }
  if (const auto rate = deps_.callbacks->learning_rate()) metrics.emplace_back("learning_rate", *rate);
  return metrics;
}

absl::StatusOr<nn::MetricValues> Trainer::Evaluate() {
  if (evaluated_version_ != deps_.client.version()) {
    const TraceSpan span(deps_.trace, TraceLane::kEvaluate, "evaluate", {.step = deps_.client.version()});
    CAIRN_ASSIGN_OR_RETURN(evaluation_,
                           evaluator_->Run(deps_.client.parameters(), [this] { return stop_.load(); }));
    evaluated_version_ = deps_.client.version();
  }
  return evaluation_;
}

absl::Status Trainer::FillInDeviations(Summary& summary) {
  if (dynamic()) {
    CAIRN_ASSIGN_OR_RETURN(const v1::DataPosition used, deps_.client.UsedData());
    summary.examples_missed = used.missed();
    summary.examples_repeated = used.repeated();
    summary.epochs = (used.next() + deps_.sampler.num_examples - 1) / deps_.sampler.num_examples;
    summary.workers = members_;
    summary.workers_max = most_members_;
    return absl::OkStatus();
  }
  int64_t position = PositionAt(deps_.client.version());
  if (!sync()) {
    if (deps_.options.train_steps > 0) return absl::OkStatus();
    position = deps_.options.epochs * loader_.batches_per_epoch();
    const int64_t end = net::FinalVersionOf(deps_.job);
    const bool complete = end > 0 && deps_.client.version() >= end;
    if (!complete &&
        position_ < position) {  // each worker ended early at its own position: nothing was missed
      PrintWhatWasNotShown(summary);
      return absl::OkStatus();
    }
  }
  int64_t missed = data::Sampler(deps_.sampler).ExamplesBefore(position) - summary.examples;
  // If the epochs of the resumed run had another length, its partial epoch was rounded down, so some examples
  // are in two updates.
  if (deps_.client.version_offset() != 0) missed = std::max<int64_t>(0, missed);
  summary.examples_missed = missed;
  return absl::OkStatus();
}

void Trainer::PrintWhatWasNotShown(const Summary& summary) {
  const int64_t beyond = summary.examples - summary.epochs * deps_.sampler.num_examples;
  if (beyond <= 0) return;
  deps_.progress->Say(absl::StrCat("Workers ran ahead of the chief: ", summary.examples,
                                   " examples were trained, ", beyond, " more than the ",
                                   Counted(summary.epochs, "epoch"), " shown."));
}

absl::StatusOr<Summary> Trainer::WrapUp() {
  client::Exchange& client = deps_.client;
  const Duration limit = FromSeconds(deps_.options.step_timeout_seconds);
  // A synchronous job makes no more updates. Once its last version is saved, a server failure cannot undo any
  // work.
  if (sync()) CAIRN_RETURN_IF_ERROR(deps_.snapshots->SaveNow(client, limit));
  CAIRN_RETURN_IF_ERROR(client.WaitForOthers(limit));
  // Only ps/0 knows when the data is used up, so this call ends the job on all servers.
  if (dynamic() && deps_.job.mode() == v1::MODE_ASYNC) CAIRN_RETURN_IF_ERROR(client.EndTraining());
  // Pull the updates that other workers pushed after the chief's last step, so that the last evaluation uses
  // the final parameters.
  CAIRN_RETURN_IF_ERROR(client.Pull());
  CAIRN_RETURN_IF_ERROR(deps_.snapshots->SaveNow(client, limit));
  CAIRN_RETURN_IF_ERROR(EndEpoch());
  CAIRN_RETURN_IF_ERROR(RestoreBest());
  CAIRN_ASSIGN_OR_RETURN(const v1::Counters counters, client.ServerCounters());

  Summary summary;
  summary.mode = deps_.options.mode;
  summary.ps = deps_.job.servers_size();
  summary.workers = summary.workers_max = deps_.job.workers_size();
  summary.batch_size = deps_.options.batch_size;
  summary.global_step = client.version();
  summary.epochs = (position() + loader_.batches_per_epoch() - 1) / loader_.batches_per_epoch();
  summary.examples = counters.examples();
  CAIRN_RETURN_IF_ERROR(FillInDeviations(summary));
  summary.seconds = ToSeconds(deps_.clock.Now() - start_);
  summary.examples_per_second = static_cast<double>(summary.examples - examples_before_) / summary.seconds;
  CAIRN_ASSIGN_OR_RETURN(summary.metrics, AllMetrics());
  summary.gradients_accepted = counters.accepted();
  summary.gradients_stale = counters.stale();
  summary.gradients_duplicate = counters.duplicate();
  summary.staleness_max = counters.staleness_max();
  summary.staleness_histogram.assign(counters.staleness_histogram().begin(),
                                     counters.staleness_histogram().end());
  if (deps_.live_metrics != nullptr) {
    const client::WireMetrics& wire = deps_.live_metrics->wire;
    summary.push_bytes = wire.push_bytes.value();
    summary.push_bytes_float32 = wire.push_float32_bytes.value();
    summary.pull_bytes = wire.pull_bytes.value();
    summary.pull_bytes_float32 = wire.pull_float32_bytes.value();
    summary.gradient_error = wire.error();
  }
  summary.best_epoch = deps_.callbacks->best_epoch();
  summary.device = deps_.device;
  summary.parameters = deps_.model.num_parameters();
  summary.parameters_sha256 = ParametersSha256(deps_.model, client.parameters());

  const absl::Status published = deps_.publish(summary);
  client.Leave(v1::LEAVE_REASON_FINISHED, "");
  CAIRN_RETURN_IF_ERROR(client.Finish());
  CAIRN_RETURN_IF_ERROR(published);
  return summary;
}

}  // namespace cairn::worker
