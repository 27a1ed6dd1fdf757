#include "worker/allreduce/ring_exchange.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/core/clock.h"
#include "common/core/log.h"
#include "common/core/status.h"
#include "optim/store/optimizer_of.h"
#include "optim/store/squares.h"

namespace cairn::allreduce {
namespace {

// kLeaveLimit: how long the neighbours have to finish too. kLastWords: how long they have to receive the
// reason why this worker leaves.
constexpr auto kLeaveLimit = std::chrono::seconds(10);
constexpr auto kLastWords = std::chrono::seconds(1);

std::vector<net::Slice> WholeSlices(absl::Span<const net::VariableInfo> variables) {
  return net::PlaceVariables(variables, {.servers = 1})[0];
}

int64_t TotalElements(absl::Span<const net::VariableInfo> variables) {
  int64_t total = 0;
  for (const net::VariableInfo& variable : variables) total += variable.shape.num_elements();
  return total;
}

}  // namespace

absl::StatusOr<std::unique_ptr<RingExchange>> RingExchange::Create(Options options,
                                                                   std::unique_ptr<RingPeer> right) {
  CAIRN_ASSIGN_OR_RETURN(auto optimizer, optim::MakeOptimizer(optim::OptimizerOf(options.job)));
  std::vector<net::Slice> slices = WholeSlices(options.variables);
  for (size_t v = 0; v < slices.size(); ++v) {  // one flat buffer, in the same order
    CAIRN_CHECK(slices[v].whole() && slices[v].offset == options.variables[v].offset);
  }
  return std::unique_ptr<RingExchange>(
      new RingExchange(std::move(options), std::move(optimizer), std::move(slices), std::move(right)));
}

RingExchange::RingExchange(Options options, std::unique_ptr<optim::Optimizer> optimizer,
                           std::vector<net::Slice> slices, std::unique_ptr<RingPeer> right)
    : options_(std::move(options)),
      optimizer_(std::move(optimizer)),
      slot_names_(optimizer_->slot_names().begin(), optimizer_->slot_names().end()),
      store_(std::move(slices), optimizer_.get(), /*initial_version=*/0, std::numeric_limits<int64_t>::max(),
             options_.thread_pool),
      member_({.worker = options_.worker,
               .names = options_.names,
               .task = options_.task,
               .cluster_hash = options_.cluster_hash,
               .incarnation = options_.incarnation,
               .data_endpoint = options_.data_endpoint,
               .job = options_.job,
               .variables = options_.variables,
               .size = TotalElements(options_.variables),
               .state_size = store_.state_pool().buffer_size(),
               .lease = FromSeconds(options_.job.lease_seconds()),
               .say = options_.say},
              std::move(right)),
      values_(store_.current()) {
  // An update writes the buffer that nothing reads. The pool always returns the same two buffers.
  buffers_ = {values_.data->span(), store_.pool().Acquire()->span()};
}

TimePoint RingExchange::StepDeadline() const {
  return std::chrono::steady_clock::now() + options_.step_timeout;
}

// --- Before training ---

absl::Status RingExchange::Initialise(const v1::Job& job, client::StateSource& source) {
  if (trained_) return absl::OkStatus();
  run_id_ = job.run_id();
  CAIRN_ASSIGN_OR_RETURN(const auto resumed, source.Find(/*lost=*/false));
  const size_t slots = resumed.has_value() ? slot_names_.size() : 0;
  AlignedBuffer state(store_.state_pool().buffer_size());
  std::vector<absl::Span<float>> into;
  for (size_t part = 0; part < 1 + slots; ++part) {
    into.push_back(state.span().subspan(part * static_cast<size_t>(size()), static_cast<size_t>(size())));
  }
  CAIRN_RETURN_IF_ERROR(source.Load(absl::MakeSpan(slot_names_).subspan(0, slots), into));
  if (resumed.has_value()) {
    progress_ = *resumed;
    store_.Restore(resumed->version(), &state);
    if (resumed->has_learning_rate()) store_.SetLearningRate(resumed->learning_rate());
  } else {
    const optim::VariableStore::Run everything = {0, size()};
    store_.Write(state, {&everything, 1});
  }
  values_ = store_.current();
  has_values_ = true;
  return absl::OkStatus();
}

std::shared_ptr<const AlignedBuffer> RingExchange::State() {
  auto state = store_.state_pool().Acquire();
  std::copy_n(values_.data->data(), size(), state->data());
  if (const auto slots = store_.CopySlotsBeyondBudget(); slots != nullptr) {
    std::copy_n(slots->data(), slots->size(), state->data() + size());
  }
  return state;
}

void RingExchange::TakeOver(const v1::RingState& source, const AlignedBuffer* state) {
  run_id_ = source.run_id();
  progress_ = source.progress();
  if (state != nullptr) store_.Restore(progress_.version(), state);
  if (progress_.has_learning_rate()) store_.SetLearningRate(progress_.learning_rate());
  values_ = store_.current();
  has_values_ = trained_ = true;
}

v1::RingState RingExchange::Mine() {
  v1::RingState mine;
  mine.set_worker(options_.worker);
  mine.set_run_id(run_id_);
  mine.set_trained(trained_);
  mine.set_has_values(has_values_);
  *mine.mutable_progress() = progress_;
  mine.mutable_progress()->set_version(version());
  if (const auto rate = store_.changed_learning_rate()) mine.mutable_progress()->set_learning_rate(*rate);
  OfferDevice(mine);
  return mine;
}

absl::Status RingExchange::Join() {
  device_sum_ = nullptr;
  const TimePoint deadline = std::chrono::steady_clock::now() + options_.connect_timeout;
  for (;;) {
    CAIRN_ASSIGN_OR_RETURN(const Agreement agreement, member_.Form([this] { return Mine(); }, deadline));
    ring_ = agreement.ring;
    ring_epoch_ = agreement.ring_epoch;
    // Devices join first, so that no other worker's device waits while values are sent.
    const absl::Status joined = JoinDevices(agreement);
    if (absl::IsAborted(joined)) continue;  // Form() enforces the deadline
    CAIRN_RETURN_IF_ERROR(joined);
    std::shared_ptr<const AlignedBuffer> state;
    if (agreement.passes) {
      const auto passed = member_.PassState(agreement, [this] { return State(); }, StepDeadline());
      if (absl::IsAborted(passed.status())) continue;
      CAIRN_RETURN_IF_ERROR(passed.status());
      state = *passed;
    }
    const bool needs = agreement.Needs(options_.worker);
    if (needs && trained_) {
      LogWarning("resuming from step ",
                 agreement.states[static_cast<size_t>(agreement.source)].progress().version(),
                 " with the values of ", member_.name(agreement.source));
    }
    TakeOver(agreement.states[static_cast<size_t>(agreement.source)], needs ? state.get() : nullptr);
    LogTransport(agreement);
    break;
  }
  if (version() < final_version() && !finished_) return absl::OkStatus();
  return Close();
}

// --- Steps ---

void RingExchange::BeginStep(absl::Span<const float> gradients, int64_t examples, int64_t) {
  ring_->Begin(examples, gradients, end_wanted_, learning_rate_wanted_);
}

absl::StatusOr<Ring::Step> RingExchange::AwaitStep() {
  auto step = ring_->Await(StepDeadline());
  if (!absl::IsDeadlineExceeded(step.status())) return step;
  std::string who;
  for (size_t worker = 0; worker < options_.names.size(); ++worker) {
    absl::StrAppend(&who, worker == 0 ? "" : ", ", worker, ": ", options_.names[worker]);
  }
  return Annotate(step.status(), absl::StrCat("no progress for ", ToSeconds(options_.step_timeout),
                                              " s; the ring is ", who));
}

absl::Status RingExchange::Apply(const Ring::Step& step) {
  const optim::ContributedGradient mean = {step.mean, step.mean == nullptr ? 0 : 1};
  optim::VariableStore::Mean update = {.gradients = {&mean, 1}, .last = version() + 1 == final_version()};
  for (const optim::Norms norms : optimizer_->norms()) {
    CAIRN_ASSIGN_OR_RETURN(auto sums, store_.Measure(norms, update));
    update.known = optim::AddUp(std::move(sums));
  }
  CAIRN_RETURN_IF_ERROR(store_.ApplyMean(update));
  values_ = store_.current();
  v1::Counters& counters = *progress_.mutable_counters();
  const auto workers = static_cast<int64_t>(step.records.size());
  counters.set_examples(counters.examples() + step.examples);
  counters.set_accepted(counters.accepted() + workers);
  if (counters.staleness_histogram().empty()) counters.add_staleness_histogram(0);
  counters.set_staleness_histogram(0, counters.staleness_histogram(0) + workers);
  return absl::OkStatus();
}

absl::StatusOr<client::StepResult> RingExchange::FinishStep() {
  CAIRN_ASSIGN_OR_RETURN(Ring::Step step, AwaitStep());
  CAIRN_RETURN_IF_ERROR(AwaitDeviceSum(step));
  if (step.records[0].has_learning_rate()) store_.SetLearningRate(step.records[0].learning_rate());
  learning_rate_wanted_.reset();
  if (step.end) {
    store_.EndHere();
    values_ = store_.current();
    finished_ = true;
    return client::StepResult{.outcome = v1::OUTCOME_FINISHED};
  }
  CAIRN_RETURN_IF_ERROR(Apply(step));
  if (version() == final_version()) CAIRN_RETURN_IF_ERROR(Close());
  return client::StepResult{.outcome = v1::OUTCOME_ACCEPTED};
}

absl::Status RingExchange::Close() {
  ring_->Begin(0, {}, /*end=*/true);
  CAIRN_RETURN_IF_ERROR(AwaitStep().status());
  finished_ = true;
  return absl::OkStatus();
}

// --- For the chief ---

absl::StatusOr<float> RingExchange::LearningRate() {
  return learning_rate_wanted_.value_or(store_.learning_rate());
}

absl::Status RingExchange::SetLearningRate(float rate) {
  learning_rate_wanted_ = rate;
  return absl::OkStatus();
}

absl::Status RingExchange::EndTraining() {
  end_wanted_ = true;
  BeginStep({}, 0, 0);
  return FinishStep().status();
}

absl::Status RingExchange::Write(absl::Span<const float> values) {
  AlignedBuffer all(size());
  std::copy(values.begin(), values.end(), all.data());
  const optim::VariableStore::Run everything = {0, size()};
  store_.Write(all, {&everything, 1});
  values_ = store_.current();
  return absl::OkStatus();
}

absl::StatusOr<client::TakenSnapshot> RingExchange::TakeSnapshot() {
  v1::Job job = options_.job;
  job.set_run_id(run_id_);
  v1::Progress progress = progress_;
  progress.set_version(version());
  progress.clear_learning_rate();
  if (const auto rate = store_.changed_learning_rate()) progress.set_learning_rate(*rate);
  CAIRN_ASSIGN_OR_RETURN(auto slots, store_.CopySlots());
  return client::TakenSnapshot{
      .version = version(),
      .read = [job = std::move(job), progress = std::move(progress), values = values_,
               slots = std::move(slots), slices = store_.slices(),
               names = slot_names_](Duration) -> absl::StatusOr<client::Snapshot> {
        AlignedBuffer state(values.data->size() + (slots == nullptr ? 0 : slots->size()));
        std::copy_n(values.data->data(), values.data->size(), state.data());
        if (slots != nullptr) std::copy_n(slots->data(), slots->size(), state.data() + values.data->size());
        client::Snapshot snapshot = {.job = job, .progress = progress, .slots = names, .servers = {}};
        snapshot.servers.push_back({.slices = slices, .state = std::move(state)});
        return snapshot;
      }};
}

// --- The end ---

void RingExchange::Leave(v1::LeaveReason reason, const std::string& message) {
  device_sum_ = nullptr;
  if (reason == v1::LEAVE_REASON_FINISHED) return;
  const std::string& self = member_.name(options_.worker);
  if (reason == v1::LEAVE_REASON_FAILED) {
    member_.Leave(absl::InvalidArgumentError(absl::StrCat(self, " failed: ", message)), kLastWords);
  } else {
    member_.Leave(absl::AbortedError(absl::StrCat(self, " has left: ", message)), kLastWords);
  }
}

absl::Status RingExchange::Part() {
  ring_->Begin(0, {}, /*end=*/true);
  CAIRN_RETURN_IF_ERROR(ring_->Await(StepDeadline()).status());
  member_.Complete();
  return absl::OkStatus();
}

void RingExchange::GoAway() {
  member_.Leave(absl::AbortedError(absl::StrCat(member_.name(options_.worker), " has left")), kLeaveLimit);
}

absl::Status RingExchange::AwaitEnd() {
  const absl::Status parted = Part();
  if (!parted.ok() && !absl::IsDeadlineExceeded(parted)) return parted;
  GoAway();
  return absl::OkStatus();
}

absl::Status RingExchange::Finish() {
  const TimePoint deadline = StepDeadline();
  absl::Status parted = Part();
  while (absl::IsAborted(parted) && std::chrono::steady_clock::now() < deadline) {
    LogWarning(parted.message(), "; training is over, and that worker will be notified");
    parted = Join();
    if (parted.ok()) parted = Part();
  }
  if (absl::IsCancelled(parted)) return parted;
  if (!parted.ok()) LogWarning("training is over, but not all workers could be notified: ", parted.message());
  GoAway();
  return absl::OkStatus();
}

}  // namespace cairn::allreduce
