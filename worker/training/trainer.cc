#include "worker/training/trainer.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/core/log.h"
#include "common/core/random.h"
#include "common/core/status.h"
#include "worker/model/finite.h"

namespace cairn::worker {
namespace {

// The seed of a worker's random numbers in one step. It differs between workers and steps, and is the same in
// every run.
uint64_t StepSeed(uint64_t seed, int worker, int64_t epoch, int64_t batch) {
  return StreamOf(absl::StrCat("step/", seed, "/", worker, "/", epoch, "/", batch));
}

// How many batches are prepared ahead. The rows of the last one may be read at once.
int DepthOf(const Trainer::Dependencies& deps) {
  return std::max(2, deps.fetcher == nullptr ? 0 : deps.fetcher->reads_ahead() + 1);
}

// Without --train_steps, an asynchronous worker goes through its own share of each epoch at its own speed.
int64_t LastPosition(const TrainingSetup& setup, int64_t batches_per_epoch) {
  const bool own_share = !setup.sync() && !setup.dynamic() && setup.options.train_steps == 0;
  return own_share ? setup.options.epochs * batches_per_epoch : std::numeric_limits<int64_t>::max();
}

}  // namespace

Trainer::Trainer(const Dependencies& deps)
    : deps_(deps),
      loader_(*deps.setup.data.train, deps.setup.sampler, DepthOf(deps), deps.instruments.trace,
              deps.setup.buckets),
      last_position_(LastPosition(setup_, loader_.batches_per_epoch())),
      gradients_(deps.setup.model.num_parameters(), /*shared=*/!deps.replica.pins()),
      loop_(LoopOptions()) {
  PinBuffers();
}

Trainer::~Trainer() {
  deps_.replica.Unpin();
}

void Trainer::PinBuffers() {
  std::vector<absl::Span<const float>> buffers = loader_.buffers();
  buffers.push_back(gradients_.span());
  for (const absl::Span<const float> buffer : deps_.steps.parameter_buffers()) buffers.push_back(buffer);
  // Smaller buffers share their memory page with others, and copying them takes negligible time.
  constexpr size_t kSmallestFloats = 1024;
  absl::Status first;
  for (const absl::Span<const float> buffer : buffers) {
    if (buffer.size() >= kSmallestFloats) first.Update(deps_.replica.Pin(buffer));
  }
  if (!first.ok()) {
    LogWarning("copies from and to ", setup_.device, " are slower than they could be: ", first.message());
  }
}

client::TrainingLoop::Options Trainer::LoopOptions() {
  return {.membership = deps_.membership,
          .steps = deps_.steps,
          .job = setup_.job,
          .chief = deps_.chief,
          .step_timeout = FromSeconds(setup_.options.step_timeout_seconds),
          .last_position = last_position_,
          .on_joined = [this] { return OnJoined(); },
          .before_end = [this] { return hooks_->AfterTraining(); },
          .on_recovery =
              [this](const absl::Status& failure) {
                LogWarning(failure.message(), "; joining again");
                if (deps_.instruments.metrics != nullptr) deps_.instruments.metrics->rejoins.Add();
              }};
}

void Trainer::Stop() {
  loop_.Interrupt(absl::CancelledError("stopped by a signal"));
}

absl::Status Trainer::Run(TrainingHooks& hooks) {
  hooks_ = &hooks;
  absl::Status result = loop_.Join();
  if (result.ok()) result = loop_.Run([this] { return MakeStep(); });
  if (result.ok()) {
    result = loop_.over();
  } else if (stopped()) {
    result = absl::CancelledError("stopped by a signal");
  }
  const absl::Status end = hooks.OnEnd(result);
  loop_.LeaveAfter(result);
  return end;
}

absl::Status Trainer::OnJoined() {
  CAIRN_RETURN_IF_ERROR(hooks_->OnJoined());
  LogInfo("joined the job at step ", deps_.steps.version());
  Pass("joined");
  epoch_ = -1;
  ForgetNext();
  return hooks_->BeforeTraining();
}

absl::Status Trainer::MakeStep() {
  if (setup_.dynamic()) {
    CAIRN_RETURN_IF_ERROR(loop_.AwaitWork());
    hooks_->OnMembers(deps_.steps.work().members());
    if (loop_.finished()) return absl::OkStatus();
  }
  if (const int64_t epoch = NextEpoch(); setup_.dynamic() ? epoch > epoch_ : epoch != epoch_) {
    CAIRN_RETURN_IF_ERROR(hooks_->OnEpochEnd());
    if (loop_.finished()) return absl::OkStatus();
    epoch_ = epoch;
    hooks_->OnEpochStart();
  }
  CAIRN_RETURN_IF_ERROR(TrainStep());
  loop_.AfterStep();
  return absl::OkStatus();
}

int64_t Trainer::NextEpoch() const {
  if (setup_.dynamic()) return deps_.steps.work().work_items(0).epoch();
  return position() / loader_.batches_per_epoch();
}

void Trainer::ForgetNext() {
  expected_.reset();
  reading_ahead_ = 0;
  deps_.replica.DropForward();
  if (deps_.fetcher != nullptr) deps_.fetcher->Forget();
}

std::optional<int64_t> Trainer::Following(int ahead) const {
  if (setup_.dynamic()) {
    const auto& work_items = deps_.steps.work().work_items();
    if (ahead >= work_items.size()) return std::nullopt;
    // An empty work item of an epoch begins behind its last example, and is not the first one of the next epoch.
    return work_items[ahead].epoch() * (setup_.job.num_examples() + 1) + work_items[ahead].first();
  }
  // In other modes than the synchronous one, position() is that of the next batch once a step has begun.
  const int64_t following = position() + ahead - (setup_.sync() ? 0 : 1);
  if (following >= (setup_.sync() ? setup_.job.final_version() : last_position_)) return std::nullopt;
  return following;
}

const data::Batch& Trainer::NextBatch() {
  const std::optional<int64_t> next = setup_.dynamic() ? Following(0) : position();
  if (next != expected_) ForgetNext();
  reading_ahead_ = std::max(0, reading_ahead_ - 1);
  if (!setup_.dynamic()) {
    const data::Batch& batch = loader_.Next(position());
    loop_.Advance();
    expected_ = Following(1);
    return batch;
  }
  const auto& work_items = deps_.steps.work().work_items();
  std::vector<data::Run> runs;
  for (const v1::WorkItem& work_item : work_items)
    runs.push_back({work_item.epoch(), work_item.first(), work_item.count()});
  const data::Batch& batch = loader_.Next(runs[0], absl::MakeSpan(runs).subspan(1));
  expected_ = Following(1);
  return batch;
}

absl::Status Trainer::ReadRowsAhead() {
  if (deps_.fetcher == nullptr || stopped()) return absl::OkStatus();
  while (reading_ahead_ < deps_.fetcher->reads_ahead() && Following(reading_ahead_ + 1).has_value()) {
    ++reading_ahead_;
    CAIRN_RETURN_IF_ERROR(deps_.fetcher->Read(ViewOf(loader_.Ahead(reading_ahead_))));
  }
  return absl::OkStatus();
}

nn::BatchView Trainer::ViewOf(const data::Batch& batch) const {
  const auto targets = static_cast<size_t>(batch.num_targets);
  const auto examples = static_cast<size_t>(batch.examples);
  const auto weights = static_cast<size_t>(batch.num_weights);
  return {.examples = batch.examples,
          .inputs = batch.inputs.First(batch.examples),
          .targets = batch.targets.span().subspan(0, examples * targets),
          .weights = batch.weights.span().subspan(0, examples * weights),
          .seed = StepSeed(setup_.options.seed, setup_.sampler.worker, batch.epoch, batch.index)};
}

double Trainer::StartNextForward(client::Step& step) {
  // Between two epochs the replica may evaluate, and work items may be assigned again.
  const std::optional<int64_t> next = Following(1);
  if (!deps_.replica.starts_early() || setup_.dynamic() || stopped() || !next.has_value() ||
      *next / loader_.batches_per_epoch() != epoch_) {
    return 0;
  }
  const absl::Span<const float> coming = step.ComingParameters();
  if (coming.empty()) return 0;
  const TraceSpan span(deps_.instruments.trace, TraceLane::kStep, "look ahead");
  const data::Batch& batch = loader_.Ahead(1);
  const TimePoint began = deps_.clock.Now();
  Duration waited{};
  deps_.replica.StartForward(coming, ViewOf(batch), [&](int variable) {
    const TimePoint asked = deps_.clock.Now();
    const bool here = step.AwaitComing(variable);
    waited += deps_.clock.Now() - asked;
    return here;
  });
  return ToSeconds(deps_.clock.Now() - began - waited);
}

Trainer::BegunStep Trainer::BeginStep(int64_t examples, int64_t position) {
  client::StepExchange& steps = deps_.steps;
  if (!steps.adds_up_on_device()) {
    return {steps.BeginStep(gradients_.span(), examples, position), gradients_.span()};
  }
  // The device sums gradients, and their mean arrives in the host's buffer.
  const absl::Span<float> gradients = deps_.replica.device_gradients();
  return {steps.BeginStepOnDevice(gradients, gradients_.span(), examples), gradients};
}

absl::Status Trainer::TrainStep() {
  const client::StepExchange& steps = deps_.steps;
  if (deps_.instruments.trace != nullptr) deps_.instruments.trace->AtStep(steps.version() + 1);
  const TraceSpan step_span(deps_.instruments.trace, TraceLane::kStep, "step");
  const TimePoint began = deps_.clock.Now();
  TraceSpan input(deps_.instruments.trace, TraceLane::kStep, "input");
  const int64_t position_after = loop_.PositionAfterStep();
  const data::Batch& batch = NextBatch();
  input.End();
  CAIRN_RETURN_IF_ERROR(setup_.data.train->status());
  const TimePoint loaded = deps_.clock.Now();
  // An empty batch has no gradient, and in this mode no other worker waits for this worker's push.
  if (batch.examples == 0 && !setup_.sync() && !setup_.ssp()) return absl::OkStatus();

  const nn::BatchView view = ViewOf(batch);
  CAIRN_RETURN_IF_ERROR(ReadRowsAhead());
  TraceSpan compute(deps_.instruments.trace, TraceLane::kStep, "compute");
  const BegunStep begun = BeginStep(view.examples, position_after);
  client::Step& step = begun.step;
  CAIRN_ASSIGN_OR_RETURN(const nn::BatchResult result, ComputeGradients(begun, view));
  if (!std::isfinite(result.sums.loss)) {
    return absl::InvalidArgumentError(absl::StrCat("the loss is ", result.sums.loss, " at version ",
                                                   steps.version(), ": ", WhyNotFinite(batch, view)));
  }
  compute.End();
  Pass("computed");
  const TimePoint computed = deps_.clock.Now();
  hooks_->OnBatch(batch, view, result);  // before StartNextForward() overwrites the result
  if (deps_.fetcher != nullptr && deps_.fetcher->reads_ahead() == 0 && !stopped() &&
      Following(1).has_value()) {
    CAIRN_RETURN_IF_ERROR(deps_.fetcher->Fetch(ViewOf(loader_.Ahead(1))));
  }
  const double forward_seconds = StartNextForward(step);
  TraceSpan awaiting(deps_.instruments.trace, TraceLane::kStep, "answer");
  CAIRN_ASSIGN_OR_RETURN(const client::StepResult answer, step.Finish());
  if (!answer.as_awaited) deps_.replica.DropForward();
  awaiting.End();
  Pass("answered");
  if (deps_.instruments.metrics != nullptr && view.examples > 0) {
    deps_.instruments.metrics->OnStep(
        {.examples = view.examples,
         .input_seconds = ToSeconds(loaded - began),
         .compute_seconds = ToSeconds(computed - loaded) + forward_seconds,
         .answer_seconds = ToSeconds(deps_.clock.Now() - computed) - forward_seconds,
         .loss = result.sums.loss / static_cast<double>(view.examples),
         .outcome = answer.outcome,
         .duplicate = answer.duplicate,
         .staleness = answer.staleness,
         .version = steps.version(),
         .epoch = epoch_ + 1});
  }
  hooks_->OnStep();
  return absl::OkStatus();
}

absl::StatusOr<nn::BatchResult> Trainer::ComputeGradients(const BegunStep& begun, const nn::BatchView& view) {
  StepBatchSync* const sync = deps_.batch_sync;
  if (sync != nullptr && view.examples == 0) CAIRN_RETURN_IF_ERROR(begun.step.SkipMeans());
  if (sync != nullptr) sync->Begin(begun.step, deps_.instruments.faults);
  auto result = deps_.replica.ForwardBackward(deps_.steps.parameters(), view, begun.gradients,
                                              [this, &begun](int variable) {
                                                begun.step.Announce(variable);
                                                Pass("announced");
                                              });
  if (sync != nullptr) sync->End();
  return result;
}

std::string Trainer::WhyNotFinite(const data::Batch& batch, const nn::BatchView& view) {
  return Explain({.model = setup_.model,
                  .parameters = deps_.steps.parameters(),
                  .batch = view,
                  .rows = batch.rows,
                  .data = setup_.options.data.path,
                  .layer = deps_.replica.FirstNonFiniteLayer()});
}

}  // namespace cairn::worker
