#include "worker/training/chief.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/job_end.h"
#include "common/core/log.h"
#include "common/core/status.h"
#include "common/flags/words.h"
#include "common/net/wire/final_version.h"
#include "worker/model/digest.h"

namespace cairn::worker {
namespace {

// The limit for saving after Stop(). The launcher and Kubernetes wait at least 10 s before they kill a
// process.
constexpr auto kSaveAtStop = std::chrono::seconds(5);

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
      steps_(training_.steps),
      control_(training_.chief->control),
      deps_(deps),
      validation_(trainer),
      display_(trainer, control_, deps.progress, deps.tensorboard) {}

absl::Status Chief::OnJoined() {
  if (start_ != TimePoint()) return absl::OkStatus();
  start_ = training_.clock.Now();
  if (const v1::Job& job = setup_.job; job.workers_size() > 1) {
    const bool counts = std::any_of(setup_.metrics.begin(), setup_.metrics.end(), Counts);
    Log(counts ? LogLevel::kWarning : LogLevel::kInfo,
        absl::StrCat("training metrics cover only the examples of ", job.workers(0), ", one of ",
                     job.workers_size(), " workers; validation metrics cover all examples"));
  }
  CAIRN_ASSIGN_OR_RETURN(const v1::Counters counters, control_.ServerCounters());
  display_.StartRun(counters);
  return absl::OkStatus();
}

absl::Status Chief::BeforeTraining() {
  epoch_ended_ = true;
  validation_.Forget();
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

void Chief::OnEpochStart() {
  epoch_ended_ = false;
  display_.Start(members_);
}

absl::Status Chief::OnEpochEnd() {
  if (std::exchange(epoch_ended_, true)) return absl::OkStatus();
  // With dynamic sharding, other workers computed the batches that followed the chief's last one.
  if (setup_.dynamic() && !trainer_.stopped()) display_.CompleteSteps();
  const bool first = trainer_.epoch() > last_ended_epoch_;
  const auto metrics = AllMetrics();
  if (!metrics.ok()) {
    // Training was stopped during the evaluation; the resumed run repeats it in EvaluateInterruptedEpoch().
    if (trainer_.stopped() && first) display_.Record(display_.metrics());
    return metrics.status();
  }
  display_.End(*metrics);
  if (!first) return absl::OkStatus();
  last_ended_epoch_ = trainer_.epoch();
  display_.Record(*metrics);
  CAIRN_ASSIGN_OR_RETURN(const Callbacks::Orders orders,
                         deps_.callbacks.OnEpochEnd(trainer_.epoch(), *metrics, steps_.parameters()));
  return CarryOut(orders);
}

absl::StatusOr<std::optional<int64_t>> Chief::EpochJustTrained() {
  int64_t done = trainer_.position(), epoch_length = trainer_.batches_per_epoch();
  if (setup_.dynamic()) {
    CAIRN_ASSIGN_OR_RETURN(const v1::DataPosition used, control_.UsedData());
    if (used.open_size() > 0) return std::nullopt;
    done = used.next();
    epoch_length = setup_.sampler.num_examples;
  }
  if (done == 0 || done % epoch_length != 0) return std::nullopt;
  return done / epoch_length - 1;
}

absl::Status Chief::EvaluateInterruptedEpoch() {
  if (deps_.tensorboard == nullptr || !validation_.exists()) return absl::OkStatus();
  CAIRN_ASSIGN_OR_RETURN(const std::optional<int64_t> epoch, EpochJustTrained());
  if (!epoch.has_value() || *epoch <= last_ended_epoch_ || !deps_.tensorboard->LacksValidation(*epoch)) {
    return absl::OkStatus();
  }
  CAIRN_ASSIGN_OR_RETURN(const nn::MetricValues validation, validation_.Evaluate());
  deps_.tensorboard->AddValidation(*epoch, steps_.version(), {validation.begin(), validation.end()});
  last_ended_epoch_ = *epoch;
  std::string text = absl::StrCat("Epoch ", *epoch + 1, ", evaluated now");
  for (const auto& [name, value] : validation) absl::StrAppendFormat(&text, " - val_%s: %.4f", name, value);
  deps_.progress.Say(text);
  return absl::OkStatus();
}

absl::Status Chief::CarryOut(const Callbacks::Orders& orders) {
  for (const std::string& message : orders.messages) deps_.progress.Say(message);
  if (steps_.finished()) return absl::OkStatus();  // after the last epoch, orders have no effect
  if (orders.learning_rate.has_value()) {
    CAIRN_RETURN_IF_ERROR(control_.SetLearningRate(*orders.learning_rate));
  }
  if (!orders.stop) return absl::OkStatus();
  CAIRN_RETURN_IF_ERROR(control_.EndTraining());
  validation_.Forget();  // moving averages may have replaced the parameters
  return absl::OkStatus();
}

absl::Status Chief::AgreeOnLearningRate() {
  if (!deps_.callbacks.needs_learning_rate()) return absl::OkStatus();
  CAIRN_ASSIGN_OR_RETURN(const float rate, control_.LearningRate());
  deps_.callbacks.set_learning_rate(rate);
  return control_.SetLearningRate(rate);
}

absl::Status Chief::RestoreBest() {
  if (deps_.callbacks.best_parameters().empty()) return absl::OkStatus();
  deps_.progress.Say(absl::StrCat(
      "Restoring model weights from the end of the best epoch: ", *deps_.callbacks.best_epoch(), "."));
  CAIRN_RETURN_IF_ERROR(control_.Write(deps_.callbacks.best_parameters(), deps_.callbacks.best_tables()));
  validation_.Forget();
  return absl::OkStatus();
}

absl::StatusOr<ShownMetrics> Chief::AllMetrics() {
  ShownMetrics metrics;
  if (trainer_.epoch() >= 0) metrics = display_.metrics();  // otherwise there was nothing left to train
  if (validation_.exists()) {
    CAIRN_ASSIGN_OR_RETURN(const nn::MetricValues validation, validation_.Evaluate());
    for (const auto& [name, value] : validation) metrics.emplace_back(absl::StrCat("val_", name), value);
  }
  if (const auto rate = deps_.callbacks.learning_rate()) metrics.emplace_back("learning_rate", *rate);
  return metrics;
}

absl::Status Chief::FillInDeviations(Summary& summary) {
  if (setup_.dynamic()) {
    CAIRN_ASSIGN_OR_RETURN(const v1::DataPosition used, control_.UsedData());
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
    const bool complete = final_version > 0 && steps_.version() >= final_version;
    if (!complete && position < end) {  // each worker ended early at its own position: nothing was missed
      PrintWhatWasNotShown(summary);
      return absl::OkStatus();
    }
    position = end;
  }
  int64_t missed = data::Sampler(setup_.sampler).ExamplesBefore(position) - summary.examples;
  // If the epochs of the resumed run had another length, its partial epoch was rounded down, so some examples
  // are in two updates.
  if (training_.membership.start().version_offset != 0) missed = std::max<int64_t>(0, missed);
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
  CAIRN_RETURN_IF_ERROR(OnEpochEnd());
  CAIRN_RETURN_IF_ERROR(RestoreBest());
  CAIRN_ASSIGN_OR_RETURN(const Summary summary, Summarise());
  published_ = deps_.publish(summary);  // after a failure, the servers end nevertheless
  return absl::OkStatus();
}

absl::StatusOr<Summary> Chief::Summarise() {
  CAIRN_ASSIGN_OR_RETURN(const v1::Counters counters, control_.ServerCounters());

  Summary summary;
  summary.mode = setup_.options.mode;
  summary.ps = setup_.job.servers_size();
  summary.workers = summary.workers_max = setup_.job.workers_size();
  summary.batch_size = setup_.options.batch_size;
  summary.global_step = steps_.version();
  summary.epochs = (trainer_.position() + trainer_.batches_per_epoch() - 1) / trainer_.batches_per_epoch();
  summary.examples = counters.examples();
  CAIRN_RETURN_IF_ERROR(FillInDeviations(summary));
  summary.seconds = ToSeconds(training_.clock.Now() - start_);
  summary.examples_per_second =
      static_cast<double>(summary.examples - display_.examples_before()) / summary.seconds;
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
    summary.row_push_bytes = wire.row_push_bytes.value();
    summary.row_pull_bytes = wire.row_pull_bytes.value();
    summary.pushed_rows = wire.pushed_rows.value();
    summary.pulled_rows = wire.pulled_rows.value();
    summary.lookups = training_.instruments.metrics->lookups.ids.value();
    summary.distinct_lookups = training_.instruments.metrics->lookups.distinct.value();
  }
  summary.best_epoch = deps_.callbacks.best_epoch();
  summary.device = setup_.device;
  summary.parameters = setup_.model.num_parameters();
  summary.parameters_sha256 = ParametersSha256(setup_.model, steps_.parameters());
  return summary;
}

absl::Status Chief::OnEnd(const absl::Status& result) {
  const absl::Status end = result.ok() ? published_ : result;
  if (deps_.tensorboard != nullptr) deps_.tensorboard->End(end.ok());
  if (client::IsOver(result)) {
    return absl::CancelledError(
        absl::StrCat(result.message(), ": another process ended the job as its chief"));
  }
  if (!result.ok() && trainer_.stopped()) SaveAtStop();
  return end;
}

void Chief::SaveAtStop() {
  const auto say = [](int64_t version, const auto&... what) {
    LogWarning("stopped at step ", version, "; ", what...);
  };
  const int64_t version = steps_.version();
  client::SnapshotSaver* const saver = training_.chief->snapshots;
  if (saver == nullptr) return say(version, "nothing is saved without --train_dir");
  const absl::Status status = saver->SaveNow(control_, version, kSaveAtStop);
  if (!status.ok()) return say(version, "saving failed: ", status.message());
  // Logs the saved version, since other workers may have made steps in the meantime.
  say(saver->newest_version(), "saved in ", setup_.options.train_dir,
      ": the same command resumes the job from there");
}

}  // namespace cairn::worker
