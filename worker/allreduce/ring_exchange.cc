#include "worker/allreduce/ring_exchange.h"

#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/core/log.h"
#include "common/core/status.h"

namespace cairn::allreduce {
namespace {

// kLeaveLimit: how long the neighbours have to finish too. kLastWords: how long they have to receive the
// reason why this worker leaves.
constexpr auto kLeaveLimit = std::chrono::seconds(10);
constexpr auto kLastWords = std::chrono::seconds(1);

// [variable + 1] The offset of each variable in the gradient, and the end.
std::vector<int64_t> BeginsOf(const std::vector<net::VariableInfo>& variables, int64_t size) {
  std::vector<int64_t> begins;
  for (const net::VariableInfo& variable : variables) begins.push_back(variable.offset);
  begins.push_back(size);
  return begins;
}

}  // namespace

absl::StatusOr<std::unique_ptr<RingExchange>> RingExchange::Create(const Options& options,
                                                                   std::unique_ptr<RingPeer> right) {
  CAIRN_ASSIGN_OR_RETURN(auto state, ModelState::Create({.job = options.job,
                                                         .variables = options.variables,
                                                         .thread_pool = options.thread_pool}));
  return std::unique_ptr<RingExchange>(new RingExchange(options, std::move(state), std::move(right)));
}

RingExchange::RingExchange(const Options& options, std::unique_ptr<ModelState> state,
                           std::unique_ptr<RingPeer> right)
    : worker_(options.worker),
      connect_timeout_(options.connect_timeout),
      state_(std::move(state)),
      member_({.worker = options.worker,
               .names = options.names,
               .task = options.task,
               .cluster_hash = options.cluster_hash,
               .incarnation = options.incarnation,
               .data_endpoint = options.data_endpoint,
               .job = options.job,
               .variables = options.variables,
               .size = state_->size(),
               .state_size = state_->state_size(),
               .lease = FromSeconds(options.job.lease_seconds()),
               .say = options.say},
              std::move(right)),
      devices_(member_, {.worker = options.worker,
                         .workers = static_cast<int>(options.names.size()),
                         .device = options.device,
                         .variable_begins = BeginsOf(options.variables, state_->size()),
                         .step_timeout = options.step_timeout,
                         .links_notice = options.links_notice}),
      steps_(*state_, devices_, {.names = options.names, .step_timeout = options.step_timeout}),
      control_(*state_, steps_, [this] { return Finish(); }) {}

absl::Status RingExchange::Initialise(const v1::Job& job, client::StateSource& source) {
  return state_->trained() ? absl::OkStatus() : state_->Initialise(job.run_id(), source);
}

v1::RingState RingExchange::Mine() {
  v1::RingState mine;
  mine.set_worker(worker_);
  state_->Describe(mine);
  if (steps_.goes_on()) devices_.Offer(mine);
  return mine;
}

absl::Status RingExchange::Join() {
  devices_.Leave();
  const TimePoint deadline = std::chrono::steady_clock::now() + connect_timeout_;
  absl::Status entered;
  do {
    CAIRN_ASSIGN_OR_RETURN(const Agreement agreement,
                           member_.Form([this] { return Mine(); }, {.deadline = deadline}));
    entered = Enter(agreement);
  } while (absl::IsAborted(entered));  // Form() enforces the deadline
  CAIRN_RETURN_IF_ERROR(entered);
  if (!steps_.goes_on()) CAIRN_RETURN_IF_ERROR(steps_.Close());
  start_ = {.position = state_->version(), .version_offset = state_->version_offset()};
  return absl::OkStatus();
}

absl::Status RingExchange::Enter(const Agreement& agreement) {
  steps_.OnFormed(agreement.ring);
  // Devices join first, so that no other worker's device waits while values are sent.
  CAIRN_RETURN_IF_ERROR(devices_.Join(agreement));
  std::shared_ptr<const AlignedBuffer> state;
  if (agreement.passes) {
    CAIRN_ASSIGN_OR_RETURN(state, member_.PassState(agreement, [this] { return state_->Pack(); },
                                                    {.deadline = steps_.StepDeadline()}));
  }
  const v1::RingState& source = agreement.states[static_cast<size_t>(agreement.source)];
  const bool needs = agreement.Needs(worker_);
  if (needs && state_->trained()) {
    LogWarning("resuming from step ", source.progress().version(), " with the values of ",
               member_.name(agreement.source));
  }
  state_->TakeOver(source, needs ? state.get() : nullptr);
  devices_.LogTransport(agreement);
  return absl::OkStatus();
}

void RingExchange::Leave(v1::LeaveReason reason, const std::string& message) {
  devices_.Leave();
  if (reason == v1::LEAVE_REASON_FINISHED) return;
  const std::string& self = member_.name(worker_);
  if (reason == v1::LEAVE_REASON_FAILED) {
    member_.Leave(absl::InvalidArgumentError(absl::StrCat(self, " failed: ", message)), kLastWords);
  } else {
    member_.Leave(absl::AbortedError(absl::StrCat(self, " has left: ", message)), kLastWords);
  }
}

absl::Status RingExchange::Part() {
  CAIRN_RETURN_IF_ERROR(steps_.PassRound());
  member_.Complete();
  return absl::OkStatus();
}

void RingExchange::GoAway() {
  member_.Leave(absl::AbortedError(absl::StrCat(member_.name(worker_), " has left")), kLeaveLimit);
}

absl::Status RingExchange::AwaitEnd() {
  const absl::Status parted = Part();
  if (!parted.ok() && !absl::IsDeadlineExceeded(parted)) return parted;
  GoAway();
  return absl::OkStatus();
}

absl::Status RingExchange::Finish() {
  const TimePoint deadline = steps_.StepDeadline();
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
