#include "worker/trainer.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/core/entropy.h"
#include "common/core/log.h"
#include "common/core/random.h"
#include "common/core/status.h"
#include "common/core/words.h"
#include "worker/client/job_end.h"
#include "worker/finite.h"

namespace cairn::worker {
namespace {

// The seed of a worker's random numbers in one step. It differs between workers and steps, and is the same in
// every run.
uint64_t StepSeed(uint64_t seed, int worker, int64_t epoch, int64_t batch) {
  return StreamOf(absl::StrCat("step/", seed, "/", worker, "/", epoch, "/", batch));
}

std::string DrawRunId() {
  return absl::StrCat(absl::Hex(DrawRandomBits(), absl::kZeroPad16));
}

// The maximum number of attempts to rejoin without a step in between. Servers that restart several times need
// a few attempts; after more failures, rejoining does not help.
constexpr int kMaxRecoveries = 10;
// The limit for saving after Stop(). The launcher and Kubernetes wait at least 10 s before they kill a
// process.
constexpr auto kSaveAtStop = std::chrono::seconds(5);

// The reason that a failing worker reports to the servers: only a permanent failure ends the job for all.
v1::LeaveReason ReasonFor(const absl::Status& status) {
  return ExitCodeOf(status) == ExitCode::kFailure && !absl::IsCancelled(status) ? v1::LEAVE_REASON_FAILED
                                                                                : v1::LEAVE_REASON_STOPPED;
}

// Whether a metric counts examples instead of averaging over them.
bool Counts(const nn::MetricSpec& metric) {
  constexpr nn::MetricMaker kCounting[] = {nn::MakeTruePositives, nn::MakeTrueNegatives,
                                           nn::MakeFalsePositives, nn::MakeFalseNegatives};
  return std::find(std::begin(kCounting), std::end(kCounting), metric.make) != std::end(kCounting);
}

}  // namespace

Trainer::Trainer(const Dependencies& deps)
    : deps_(deps),
      run_id_(DrawRunId()),
      loader_(*deps.data.train, deps.sampler, /*depth=*/2, deps.trace),
      gradients_(deps.model.num_parameters(), /*shared=*/!deps.replica.pins()),
      metrics_(deps.metrics) {
  if (chief() && deps_.options.validation && deps_.data.validation != nullptr) {
    evaluator_ =
        std::make_unique<Evaluator>(*deps_.data.validation, deps_.model, deps_.replica, deps_.metrics);
  }
  PinBuffers();
}

Trainer::~Trainer() {
  deps_.replica.Unpin();
}

void Trainer::PinBuffers() {
  std::vector<absl::Span<const float>> buffers = loader_.buffers();
  buffers.push_back(gradients_.span());
  for (const absl::Span<const float> buffer : deps_.client.parameter_buffers()) buffers.push_back(buffer);
  // Smaller buffers share their memory page with others, and copying them takes negligible time.
  constexpr size_t kSmallestFloats = 1024;
  absl::Status first;
  for (const absl::Span<const float> buffer : buffers) {
    if (buffer.size() >= kSmallestFloats) first.Update(deps_.replica.Pin(buffer));
  }
  if (!first.ok()) {
    LogWarning("copies from and to ", deps_.device, " are slower than they could be: ", first.message());
  }
}

void Trainer::Stop() {
  stop_ = true;
  deps_.client.Interrupt(absl::CancelledError("stopped by a signal"));
}

absl::Status Trainer::Initialise() {
  v1::Job job = deps_.job;
  job.set_run_id(run_id_);
  if (job.workers_size() > 1) {
    const bool counts = std::any_of(deps_.metrics.begin(), deps_.metrics.end(), Counts);
    Log(counts ? LogLevel::kWarning : LogLevel::kInfo,
        absl::StrCat("training metrics cover only the examples of ", job.workers(0), ", one of ",
                     job.workers_size(), " workers; validation metrics cover all examples"));
  }
  return deps_.client.Initialise(job, *deps_.snapshots);
}

absl::StatusOr<Summary> Trainer::Run() {
  auto result = TrainAndRecover();
  if (deps_.tensorboard != nullptr) deps_.tensorboard->End(result.ok());
  if (result.ok()) return result;
  absl::Status status = result.status();
  if (client::IsOver(status)) {  // the job ended without this worker, which was paused or joined late
    if (chief()) {
      return absl::CancelledError(
          absl::StrCat(status.message(), ": another process ended the job as its chief"));
    }
    LogInfo(status.message());
    return Summary{};
  }
  if (stop_) {
    status = absl::CancelledError("stopped by a signal");
    if (chief()) SaveAtStop();
  }
  deps_.client.Leave(ReasonFor(status), std::string(status.message()));
  return status;
}

void Trainer::SaveAtStop() {
  const auto say = [](int64_t version, const auto&... what) {
    LogWarning("stopped at step ", version, "; ", what...);
  };
  const int64_t version = deps_.client.version();
  if (deps_.options.train_dir.empty()) return say(version, "nothing is saved without --train_dir");
  const absl::Status status = deps_.snapshots->SaveNow(deps_.client, kSaveAtStop);
  if (!status.ok()) return say(version, "saving failed: ", status.message());
  // Logs the saved version, since other workers may have made steps in the meantime.
  say(deps_.snapshots->newest_version(), "saved in ", deps_.options.train_dir,
      ": the same command resumes the job from there");
}

absl::StatusOr<Summary> Trainer::TrainAndRecover() {
  client::Exchange& client = deps_.client;
  int recoveries = 0;  // rejoins without a step in between
  absl::Status entered = Enter();
  for (;;) {
    const int64_t entered_at = client.version();
    absl::StatusOr<Summary> result = entered.ok() ? TrainToTheEnd() : absl::StatusOr<Summary>(entered);
    if (result.ok() || stop_ || !client.CanReconnectAfter(result.status())) return result;
    recoveries = client.version() > entered_at ? 0 : recoveries + 1;
    if (recoveries > kMaxRecoveries) return result;
    LogWarning(result.status().message(), "; joining again");
    if (deps_.live_metrics != nullptr) deps_.live_metrics->rejoins.Add();
    entered = Reenter();
  }
}

absl::Status Trainer::Enter() {
  client::Exchange& client = deps_.client;
  CAIRN_RETURN_IF_ERROR(client.WaitReady(deps_.job));
  CAIRN_RETURN_IF_ERROR(client.Join());
  if (chief()) deps_.snapshots->CountFrom(client.version());
  if (start_ == TimePoint()) {
    start_ = deps_.clock.Now();
    if (chief()) {
      CAIRN_ASSIGN_OR_RETURN(const v1::Counters counters, client.ServerCounters());
      examples_before_ = counters.examples();
      last_counters_ = counters;
    }
  }
  LogInfo("joined the job at step ", client.version());
  Pass("joined");
  // With bounded staleness, a returning worker continues at least at the slowest worker's clock. All clocks
  // must reach the same end, or the others would wait for this worker.
  position_ = ssp() ? client.clock_at_join() : client.position();
  epoch_ = -1;
  epoch_ended_ = true;
  evaluated_version_ = -1;
  ahead_ = nullptr;
  deps_.replica.DropForward();
  return AgreeOnLearningRate();
}

absl::Status Trainer::Reenter() {
  CAIRN_RETURN_IF_ERROR(deps_.client.Reconnect());
  if (chief()) CAIRN_RETURN_IF_ERROR(Initialise());
  return Enter();
}

absl::StatusOr<Summary> Trainer::TrainToTheEnd() {
  CAIRN_RETURN_IF_ERROR(EvaluateInterruptedEpoch());
  while (!done()) {
    if (dynamic()) CAIRN_RETURN_IF_ERROR(NoteWork());
    if (done()) break;
    if (const int64_t epoch = NextEpoch(); dynamic() ? epoch > epoch_ : epoch != epoch_) {
      CAIRN_RETURN_IF_ERROR(EndEpoch());
      if (done()) break;
      StartEpoch(epoch);
    }
    CAIRN_RETURN_IF_ERROR(TrainStep());
    if (chief()) deps_.snapshots->AfterStep(deps_.client);
  }
  if (chief()) return WrapUp();
  deps_.client.Leave(v1::LEAVE_REASON_FINISHED, "");
  // If a server fails before the chief has saved, this worker's updates are lost and must be computed again.
  // So the worker waits for the end of the job.
  CAIRN_RETURN_IF_ERROR(deps_.client.AwaitEnd());
  return Summary{};
}

bool Trainer::done() const {
  if (deps_.client.finished()) return true;
  if (dynamic()) return false;
  // Without --train_steps, an asynchronous worker goes through its own share of each epoch at its own speed.
  return !sync() && deps_.options.train_steps == 0 &&
         position_ >= deps_.options.epochs * loader_.batches_per_epoch();
}

absl::Status Trainer::NoteWork() {
  client::Exchange& client = deps_.client;
  if (client.work().work_items().empty()) CAIRN_RETURN_IF_ERROR(client.AwaitWork());
  const int members = client.work().members();
  if (chief() && members_ > 0 && members != members_)
    LogInfo(Counted(members, "worker"), members == 1 ? " takes" : " take", " part now, ", members_,
            " before");
  members_ = members;
  most_members_ = std::max(most_members_, members);
  return absl::OkStatus();
}

int64_t Trainer::NextEpoch() const {
  if (dynamic()) return deps_.client.work().work_items(0).epoch();
  return position() / loader_.batches_per_epoch();
}

const data::Batch& Trainer::NextBatch() {
  if (!dynamic()) {
    const data::Batch* const ahead = std::exchange(ahead_, nullptr);
    const data::Batch& batch =
        ahead != nullptr && next_position_ == position() ? *ahead : loader_.Next(position());
    ++position_;
    return batch;
  }
  const auto& work_items = deps_.client.work().work_items();
  std::vector<data::Run> runs;
  for (const v1::WorkItem& work_item : work_items)
    runs.push_back({work_item.epoch(), work_item.first(), work_item.count()});
  position_ = runs[0].epoch * deps_.sampler.num_examples + runs[0].first;
  return loader_.Next(runs[0], absl::MakeSpan(runs).subspan(1));
}

nn::BatchView Trainer::ViewOf(const data::Batch& batch) const {
  const auto elements = static_cast<size_t>(deps_.data.train->example_shape().num_elements());
  const auto targets = static_cast<size_t>(deps_.data.train->num_targets());
  const auto examples = static_cast<size_t>(batch.examples);
  return {.examples = batch.examples,
          .inputs = batch.inputs.span().subspan(0, examples * elements),
          .targets = batch.targets.span().subspan(0, examples * targets),
          .weights = batch.weights.span().subspan(0, deps_.data.train->weighted() ? examples : 0),
          .seed = StepSeed(deps_.options.seed, deps_.sampler.worker, batch.epoch, batch.index)};
}

double Trainer::StartNextForward() {
  client::Exchange& client = deps_.client;
  const int64_t next = sync() ? PositionAt(client.version() + 1) : position_;
  const bool in_epoch =
      next / loader_.batches_per_epoch() == epoch_ && (!sync() || next < deps_.job.final_version());
  if (!deps_.replica.starts_early() || dynamic() || !in_epoch || stop_) return 0;
  const absl::Span<const float> coming = client.ComingParameters();
  if (coming.empty()) return 0;
  const TraceSpan span(deps_.trace, TraceLane::kStep, "look ahead");
  ahead_ = &loader_.Next(next);
  next_position_ = next;
  const TimePoint began = deps_.clock.Now();
  Duration waited{};
  deps_.replica.StartForward(coming, ViewOf(*ahead_), [&](int variable) {
    const TimePoint asked = deps_.clock.Now();
    const bool here = client.AwaitComing(variable);
    waited += deps_.clock.Now() - asked;
    return here;
  });
  return ToSeconds(deps_.clock.Now() - began - waited);
}

absl::Status Trainer::TrainStep() {
  client::Exchange& client = deps_.client;
  if (deps_.trace != nullptr) deps_.trace->AtStep(client.version() + 1);
  const TraceSpan step(deps_.trace, TraceLane::kStep, "step");
  const TimePoint began = deps_.clock.Now();
  TraceSpan input(deps_.trace, TraceLane::kStep, "input");
  const data::Batch& batch = NextBatch();
  input.End();
  CAIRN_RETURN_IF_ERROR(deps_.data.train->status());
  const TimePoint loaded = deps_.clock.Now();
  // An empty batch has no gradient, and in this mode no other worker waits for this worker's push.
  if (batch.examples == 0 && !sync() && !ssp()) return absl::OkStatus();

  const nn::BatchView view = ViewOf(batch);
  shown_steps_ = std::max(shown_steps_, std::min(batch.index + 1, loader_.batches_per_epoch()));

  TraceSpan compute(deps_.trace, TraceLane::kStep, "compute");
  // If the device sums gradients, their mean arrives in the host's buffer.
  const bool on_host = !client.adds_up_on_device();
  const absl::Span<float> gradients = on_host ? gradients_.span() : deps_.replica.device_gradients();
  if (on_host) {
    client.BeginStep(gradients, view.examples, position_);
  } else {
    client.BeginStepOnDevice(gradients, gradients_.span(), view.examples);
  }
  CAIRN_ASSIGN_OR_RETURN(
      const nn::BatchResult result,
      deps_.replica.ForwardBackward(client.parameters(), view, gradients, [&](int variable) {
        client.Announce(variable);
        Pass("announced");
      }));
  if (!std::isfinite(result.sums.loss)) {
    return absl::InvalidArgumentError(absl::StrCat("the loss is ", result.sums.loss, " at version ",
                                                   client.version(), ": ", WhyNotFinite(batch, view)));
  }
  compute.End();
  Pass("computed");
  const TimePoint computed = deps_.clock.Now();
  if (chief()) metrics_.Update(view, result);  // before StartNextForward() overwrites the result
  const double forward_seconds = StartNextForward();
  TraceSpan awaiting(deps_.trace, TraceLane::kStep, "answer");
  CAIRN_ASSIGN_OR_RETURN(const client::StepResult answer, client.FinishStep());
  if (!answer.as_awaited) deps_.replica.DropForward();
  awaiting.End();
  Pass("answered");
  if (deps_.live_metrics != nullptr && view.examples > 0) {
    deps_.live_metrics->OnStep({.examples = view.examples,
                                .input_seconds = ToSeconds(loaded - began),
                                .compute_seconds = ToSeconds(computed - loaded) + forward_seconds,
                                .answer_seconds = ToSeconds(deps_.clock.Now() - computed) - forward_seconds,
                                .loss = result.sums.loss / static_cast<double>(view.examples),
                                .outcome = answer.outcome,
                                .duplicate = answer.duplicate,
                                .staleness = answer.staleness,
                                .version = client.version(),
                                .epoch = epoch_ + 1});
  }

  if (!chief()) return absl::OkStatus();
  const TraceSpan report(deps_.trace, TraceLane::kStep, "report");
  if (deps_.progress->redraws() && deps_.clock.Now() >= report_at_) ReportCluster();
  deps_.progress->Update(shown_steps_, [this] { return metrics_.Values(); });
  if (deps_.tensorboard != nullptr && deps_.tensorboard->WantsStep(client.version())) {
    deps_.tensorboard->OnStep(client.version(), metrics_.Values());
  }
  return absl::OkStatus();
}

std::string Trainer::WhyNotFinite(const data::Batch& batch, const nn::BatchView& view) {
  return Explain({.model = deps_.model,
                  .parameters = deps_.client.parameters(),
                  .batch = view,
                  .rows = batch.rows,
                  .data = deps_.options.data.path,
                  .layer = deps_.replica.FirstNonFiniteLayer()});
}

}  // namespace cairn::worker
