#include "worker/chief.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/core/entropy.h"
#include "common/core/log.h"
#include "common/core/status.h"
#include "common/core/words.h"
#include "common/net/final_version.h"
#include "worker/client/job_end.h"
#include "worker/digest.h"

namespace cairn::worker {
namespace {

// The interval between queries to ps/0.
constexpr auto kReportEvery = std::chrono::seconds(2);
// The limit for saving after Stop(). The launcher and Kubernetes wait at least 10 s before they kill a
// process.
constexpr auto kSaveAtStop = std::chrono::seconds(5);

std::string DrawRunId() {
  return absl::StrCat(absl::Hex(DrawRandomBits(), absl::kZeroPad16));
}

// Whether a metric counts examples instead of averaging over them.
bool Counts(const nn::MetricSpec& metric) {
  constexpr nn::MetricMaker kCounting[] = {nn::MakeTruePositives, nn::MakeTrueNegatives,
                                           nn::MakeFalsePositives, nn::MakeFalseNegatives};
  return std::find(std::begin(kCounting), std::end(kCounting), metric.make) != std::end(kCounting);
}

}  // namespace

Chief::Chief(const Trainer& trainer, const Dependencies& deps)
    : trainer_(trainer),
      training_(trainer.deps()),
      setup_(training_.setup),
      client_(training_.client),
      deps_(deps),
      run_id_(DrawRunId()),
      metrics_(setup_.metrics) {
  if (setup_.options.validation && setup_.data.validation != nullptr) {
    evaluator_ =
        std::make_unique<Evaluator>(*setup_.data.validation, setup_.model, training_.replica, setup_.metrics);
  }
}

absl::Status Chief::Initialise() {
  v1::Job job = setup_.job;
  job.set_run_id(run_id_);
  if (job.workers_size() > 1) {
    const bool counts = std::any_of(setup_.metrics.begin(), setup_.metrics.end(), Counts);
    Log(counts ? LogLevel::kWarning : LogLevel::kInfo,
        absl::StrCat("training metrics cover only the examples of ", job.workers(0), ", one of ",
                     job.workers_size(), " workers; validation metrics cover all examples"));
  }
  return client_.Initialise(job, deps_.snapshots);
}

absl::Status Chief::OnJoined() {
  deps_.snapshots.CountFrom(client_.version());
  if (start_ != TimePoint()) return absl::OkStatus();
  start_ = training_.clock.Now();
  CAIRN_ASSIGN_OR_RETURN(last_counters_, client_.ServerCounters());
  examples_before_ = last_counters_.examples();
  return absl::OkStatus();
}

absl::Status Chief::BeforeTraining() {
  epoch_ended_ = true;
  evaluated_version_ = -1;
  CAIRN_RETURN_IF_ERROR(AgreeOnLearningRate());
  return EvaluateInterruptedEpoch();
}

void Chief::OnMembers(int members) {
  if (members_ > 0 && members != members_)
    LogInfo(Counted(members, "worker"), members == 1 ? " takes" : " take", " part now, ", members_,
            " before");
  members_ = members;
  most_members_ = std::max(most_members_, members);
}

void Chief::OnBatch(const data::Batch& batch, const nn::BatchView& view, const nn::BatchResult& result) {
  shown_steps_ = std::max(shown_steps_, std::min(batch.index + 1, trainer_.batches_per_epoch()));
  metrics_.Update(view, result);
}

void Chief::OnStep() {
  const TraceSpan report(training_.instruments.trace, TraceLane::kStep, "report");
  if (deps_.progress.redraws() && training_.clock.Now() >= report_at_) ReportCluster();
  deps_.progress.Update(shown_steps_, [this] { return metrics_.Values(); });
  if (deps_.tensorboard != nullptr && deps_.tensorboard->WantsStep(client_.version())) {
    deps_.tensorboard->OnStep(client_.version(), metrics_.Values());
  }
}

void Chief::OnEpochStart() {
  shown_steps_ = 0;
  metrics_.Reset();
  epoch_ended_ = false;
  epoch_counters_ = last_counters_;
  epoch_start_ = training_.clock.Now();
  report_at_ = epoch_start_ + kReportEvery;
  int64_t steps_in_all = setup_.options.epochs * trainer_.batches_per_epoch();
  if (setup_.options.train_steps > 0 || (setup_.sync() && !setup_.dynamic()))
    steps_in_all = setup_.job.final_version();
  // The progress line counts batches, and each update takes one batch from every current member.
  if (setup_.options.train_steps > 0 && setup_.sync() && setup_.dynamic()) steps_in_all *= members_;
  const int64_t epochs = (steps_in_all + trainer_.batches_per_epoch() - 1) / trainer_.batches_per_epoch();
  if (deps_.tensorboard != nullptr)
    deps_.tensorboard->Begin(trainer_.epoch(), client_.version(), examples_before_);
  deps_.progress.StartEpoch(trainer_.epoch() + 1, std::max(epochs, trainer_.epoch() + 1),
                            trainer_.batches_per_epoch());
}

absl::Status Chief::OnEpochEnd() {
  if (std::exchange(epoch_ended_, true)) return absl::OkStatus();
  // With dynamic sharding, other workers computed the batches that followed the chief's last one.
  if (setup_.dynamic() && !trainer_.stopped())
    deps_.progress.Update(trainer_.batches_per_epoch(), [this] { return metrics_.Values(); });
  const auto all = AllMetrics();
  if (!all.ok()) {
    // Training was stopped during the evaluation; the resumed run repeats it in EvaluateInterruptedEpoch().
    if (trainer_.stopped() && deps_.tensorboard != nullptr && trainer_.epoch() > last_ended_epoch_)
      RecordEpoch(metrics_.Values());
    return all.status();
  }
  const ShownMetrics& metrics = *all;
  ReportCluster();
  deps_.progress.EndEpoch(metrics);
  if (trainer_.epoch() <= last_ended_epoch_) return absl::OkStatus();
  last_ended_epoch_ = trainer_.epoch();
  if (deps_.tensorboard != nullptr) RecordEpoch(metrics);
  CAIRN_ASSIGN_OR_RETURN(const Callbacks::Orders orders,
                         deps_.callbacks.OnEpochEnd(trainer_.epoch(), metrics, client_.parameters()));
  return CarryOut(orders);
}

absl::StatusOr<std::optional<int64_t>> Chief::EpochJustTrained() {
  int64_t done = trainer_.position(), epoch_length = trainer_.batches_per_epoch();
  if (setup_.dynamic()) {
    CAIRN_ASSIGN_OR_RETURN(const v1::DataPosition used, client_.UsedData());
    if (used.open_size() > 0) return std::nullopt;
    done = used.next();
    epoch_length = setup_.sampler.num_examples;
  }
  if (done == 0 || done % epoch_length != 0) return std::nullopt;
  return done / epoch_length - 1;
}

absl::Status Chief::EvaluateInterruptedEpoch() {
  if (deps_.tensorboard == nullptr || evaluator_ == nullptr) return absl::OkStatus();
  CAIRN_ASSIGN_OR_RETURN(const std::optional<int64_t> epoch, EpochJustTrained());
  if (!epoch.has_value() || *epoch <= last_ended_epoch_ || !deps_.tensorboard->LacksValidation(*epoch)) {
    return absl::OkStatus();
  }
  CAIRN_ASSIGN_OR_RETURN(const nn::MetricValues validation, Evaluate());
  deps_.tensorboard->AddValidation(*epoch, client_.version(), {validation.begin(), validation.end()});
  last_ended_epoch_ = *epoch;
  std::string text = absl::StrCat("Epoch ", *epoch + 1, ", evaluated now");
  for (const auto& [name, value] : validation) absl::StrAppendFormat(&text, " - val_%s: %.4f", name, value);
  deps_.progress.Say(text);
  return absl::OkStatus();
}

void Chief::ReportCluster() {
  const TimePoint now = training_.clock.Now();
  report_at_ = now + kReportEvery;
  const auto counters = client_.ServerCounters();
  if (!counters.ok()) return;  // a server failed: the next step reports it
  last_counters_ = *counters;
  deps_.progress.SetCluster(
      {.examples_per_second = static_cast<double>(counters->examples() - epoch_counters_.examples()) /
                              ToSeconds(now - epoch_start_),
       .stale = counters->stale() - epoch_counters_.stale(),
       .refused = counters->rejected() - epoch_counters_.rejected()});
}

void Chief::RecordEpoch(const ShownMetrics& metrics) {
  const auto counters = client_.ServerCounters();
  const auto rate = client_.LearningRate();
  if (!counters.ok() || !rate.ok()) return;  // a server failed: the next step reports it
  deps_.tensorboard->OnEpochEnd({.epoch = trainer_.epoch(),
                                 .version = client_.version(),
                                 .examples = counters->examples(),
                                 .gradients_stale = counters->stale(),
                                 .gradients_rejected = counters->rejected(),
                                 .staleness_max = counters->staleness_max(),
                                 .learning_rate = *rate,
                                 .metrics = metrics,
                                 .parameters = client_.parameters(),
                                 .last_gradients = trainer_.last_gradients()});
}

absl::Status Chief::CarryOut(const Callbacks::Orders& orders) {
  for (const std::string& message : orders.messages) deps_.progress.Say(message);
  if (client_.finished()) return absl::OkStatus();  // after the last epoch, orders have no effect
  if (orders.learning_rate.has_value()) {
    CAIRN_RETURN_IF_ERROR(client_.SetLearningRate(*orders.learning_rate));
  }
  if (!orders.stop) return absl::OkStatus();
  CAIRN_RETURN_IF_ERROR(client_.EndTraining());
  evaluated_version_ = -1;  // moving averages may have replaced the parameters
  return absl::OkStatus();
}

absl::Status Chief::AgreeOnLearningRate() {
  if (!deps_.callbacks.needs_learning_rate()) return absl::OkStatus();
  CAIRN_ASSIGN_OR_RETURN(const float rate, client_.LearningRate());
  deps_.callbacks.set_learning_rate(rate);
  return client_.SetLearningRate(rate);
}

absl::Status Chief::RestoreBest() {
  if (deps_.callbacks.best_parameters().empty()) return absl::OkStatus();
  deps_.progress.Say(absl::StrCat(
      "Restoring model weights from the end of the best epoch: ", *deps_.callbacks.best_epoch(), "."));
  CAIRN_RETURN_IF_ERROR(client_.Write(deps_.callbacks.best_parameters()));
  evaluated_version_ = -1;
  return absl::OkStatus();
}

absl::StatusOr<ShownMetrics> Chief::AllMetrics() {
  ShownMetrics metrics;
  if (trainer_.epoch() >= 0) metrics = metrics_.Values();  // otherwise there was nothing left to train
  if (evaluator_ != nullptr) {
    CAIRN_ASSIGN_OR_RETURN(const nn::MetricValues validation, Evaluate());
    for (const auto& [name, value] : validation) metrics.emplace_back(absl::StrCat("val_", name), value);
  }
  if (const auto rate = deps_.callbacks.learning_rate()) metrics.emplace_back("learning_rate", *rate);
  return metrics;
}

absl::StatusOr<nn::MetricValues> Chief::Evaluate() {
  if (evaluated_version_ != client_.version()) {
    const TraceSpan span(training_.instruments.trace, TraceLane::kEvaluate, "evaluate",
                         {.step = client_.version()});
    CAIRN_ASSIGN_OR_RETURN(evaluation_,
                           evaluator_->Run(client_.parameters(), [this] { return trainer_.stopped(); }));
    evaluated_version_ = client_.version();
  }
  return evaluation_;
}

absl::Status Chief::FillInDeviations(Summary& summary) {
  if (setup_.dynamic()) {
    CAIRN_ASSIGN_OR_RETURN(const v1::DataPosition used, client_.UsedData());
    summary.examples_missed = used.missed();
    summary.examples_repeated = used.repeated();
    summary.epochs = (used.next() + setup_.sampler.num_examples - 1) / setup_.sampler.num_examples;
    summary.workers = members_;
    summary.workers_max = most_members_;
    return absl::OkStatus();
  }
  int64_t position = trainer_.position();
  if (!setup_.sync()) {
    if (setup_.options.train_steps > 0) return absl::OkStatus();
    const int64_t end = setup_.options.epochs * trainer_.batches_per_epoch();
    const int64_t final_version = net::FinalVersionOf(setup_.job);
    const bool complete = final_version > 0 && client_.version() >= final_version;
    if (!complete && position < end) {  // each worker ended early at its own position: nothing was missed
      PrintWhatWasNotShown(summary);
      return absl::OkStatus();
    }
    position = end;
  }
  int64_t missed = data::Sampler(setup_.sampler).ExamplesBefore(position) - summary.examples;
  // If the epochs of the resumed run had another length, its partial epoch was rounded down, so some examples
  // are in two updates.
  if (client_.version_offset() != 0) missed = std::max<int64_t>(0, missed);
  summary.examples_missed = missed;
  return absl::OkStatus();
}

void Chief::PrintWhatWasNotShown(const Summary& summary) {
  const int64_t beyond = summary.examples - summary.epochs * setup_.sampler.num_examples;
  if (beyond <= 0) return;
  deps_.progress.Say(absl::StrCat("Workers ran ahead of the chief: ", summary.examples,
                                  " examples were trained, ", beyond, " more than the ",
                                  Counted(summary.epochs, "epoch"), " shown."));
}

absl::Status Chief::AfterTraining() {
  const Duration limit = FromSeconds(setup_.options.step_timeout_seconds);
  // A synchronous job makes no more updates. Once its last version is saved, a server failure cannot undo any
  // work.
  if (setup_.sync()) CAIRN_RETURN_IF_ERROR(deps_.snapshots.SaveNow(client_, limit));
  CAIRN_RETURN_IF_ERROR(client_.WaitForOthers(limit));
  // Only ps/0 knows when the data is used up, so this call ends the job on all servers.
  if (setup_.dynamic() && setup_.job.mode() == v1::MODE_ASYNC) CAIRN_RETURN_IF_ERROR(client_.EndTraining());
  // Pull the updates that other workers pushed after the chief's last step, so that the last evaluation uses
  // the final parameters.
  CAIRN_RETURN_IF_ERROR(client_.Pull());
  CAIRN_RETURN_IF_ERROR(deps_.snapshots.SaveNow(client_, limit));
  CAIRN_RETURN_IF_ERROR(OnEpochEnd());
  CAIRN_RETURN_IF_ERROR(RestoreBest());
  CAIRN_ASSIGN_OR_RETURN(const Summary summary, Summarise());
  const absl::Status published = deps_.publish(summary);
  client_.Leave(v1::LEAVE_REASON_FINISHED, "");
  CAIRN_RETURN_IF_ERROR(client_.Finish());
  return published;
}

absl::StatusOr<Summary> Chief::Summarise() {
  CAIRN_ASSIGN_OR_RETURN(const v1::Counters counters, client_.ServerCounters());

  Summary summary;
  summary.mode = setup_.options.mode;
  summary.ps = setup_.job.servers_size();
  summary.workers = summary.workers_max = setup_.job.workers_size();
  summary.batch_size = setup_.options.batch_size;
  summary.global_step = client_.version();
  summary.epochs = (trainer_.position() + trainer_.batches_per_epoch() - 1) / trainer_.batches_per_epoch();
  summary.examples = counters.examples();
  CAIRN_RETURN_IF_ERROR(FillInDeviations(summary));
  summary.seconds = ToSeconds(training_.clock.Now() - start_);
  summary.examples_per_second = static_cast<double>(summary.examples - examples_before_) / summary.seconds;
  CAIRN_ASSIGN_OR_RETURN(summary.metrics, AllMetrics());
  summary.gradients_accepted = counters.accepted();
  summary.gradients_stale = counters.stale();
  summary.gradients_duplicate = counters.duplicate();
  summary.staleness_max = counters.staleness_max();
  summary.staleness_histogram.assign(counters.staleness_histogram().begin(),
                                     counters.staleness_histogram().end());
  if (training_.instruments.metrics != nullptr) {
    const client::WireMetrics& wire = training_.instruments.metrics->wire;
    summary.push_bytes = wire.push_bytes.value();
    summary.push_bytes_float32 = wire.push_float32_bytes.value();
    summary.pull_bytes = wire.pull_bytes.value();
    summary.pull_bytes_float32 = wire.pull_float32_bytes.value();
    summary.gradient_error = wire.error();
  }
  summary.best_epoch = deps_.callbacks.best_epoch();
  summary.device = setup_.device;
  summary.parameters = setup_.model.num_parameters();
  summary.parameters_sha256 = ParametersSha256(setup_.model, client_.parameters());
  return summary;
}

absl::Status Chief::OnEnd(const absl::Status& result) {
  if (deps_.tensorboard != nullptr) deps_.tensorboard->End(result.ok());
  if (client::IsOver(result)) {
    return absl::CancelledError(
        absl::StrCat(result.message(), ": another process ended the job as its chief"));
  }
  if (!result.ok() && trainer_.stopped()) SaveAtStop();
  return result;
}

void Chief::SaveAtStop() {
  const auto say = [](int64_t version, const auto&... what) {
    LogWarning("stopped at step ", version, "; ", what...);
  };
  const int64_t version = client_.version();
  if (setup_.options.train_dir.empty()) return say(version, "nothing is saved without --train_dir");
  const absl::Status status = deps_.snapshots.SaveNow(client_, kSaveAtStop);
  if (!status.ok()) return say(version, "saving failed: ", status.message());
  // Logs the saved version, since other workers may have made steps in the meantime.
  say(deps_.snapshots.newest_version(), "saved in ", setup_.options.train_dir,
      ": the same command resumes the job from there");
}

}  // namespace cairn::worker
