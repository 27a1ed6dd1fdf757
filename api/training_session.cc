#include "api/training_session.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "api/conversions.h"
#include "client/job_end.h"
#include "common/core/status.h"
#include "common/memory/out_of_memory.h"
#include "common/system/entropy.h"

namespace cairn::api {
namespace {

// The maximum number of attempts to become a member again without an update in between. Servers that restart
// several times need a few; after more failures, another attempt does not help.
constexpr int kMaxRecoveries = 10;
// How long a wait for the answers to a step lasts between two calls of ConnectOptions::keep_waiting.
constexpr auto kSlice = std::chrono::milliseconds(100);
// Servers refuse larger weights.
constexpr int64_t kMaxExamples = std::numeric_limits<uint32_t>::max();

// Whether the others are likely to fail with this error too.
bool FailsForAll(const absl::Status& status) {
  return absl::IsInvalidArgument(status) || absl::IsInternal(status) || absl::IsUnknown(status);
}

int64_t ElementsOf(const Job& job) {
  int64_t elements = 0;
  for (const Variable& variable : job.variables) elements += variable.num_elements();
  return elements;
}

}  // namespace

TrainingSession::TrainingSession(const Job& job, const SessionOptions& options)
    : job_(job),
      options_(options),
      task_(options.task.empty() ? absl::StrCat("worker/", options.worker) : options.task),
      gradients_(ElementsOf(job)),
      announced_(job.variables.size()) {}

absl::StatusOr<std::unique_ptr<TrainingSession>> TrainingSession::Open(const Job& job,
                                                                       const SessionOptions& options,
                                                                       const Reach& reach) {
  CAIRN_ASSIGN_OR_RETURN(std::vector<net::VariableInfo> variables, VariablesOf(job));
  CAIRN_ASSIGN_OR_RETURN(v1::Job declared, ToProto(job, options));
  return CatchOutOfMemory("the values and gradients",
                          [&]() -> absl::StatusOr<std::unique_ptr<TrainingSession>> {
                            std::unique_ptr<TrainingSession> session(new TrainingSession(job, options));
                            session->variables_ = std::move(variables);
                            session->declared_ = std::move(declared);
                            CAIRN_RETURN_IF_ERROR(session->Start(reach));
                            return session;
                          });
}

absl::Status TrainingSession::Start(const Reach& reach) {
  if (chief()) {
    CAIRN_ASSIGN_OR_RETURN(
        checkpoints_,
        Checkpoints::Create(
            {.options = options_, .job = job_, .declared = declared_, .variables = variables_}));
    declared_.set_run_id(absl::StrCat(absl::Hex(DrawRandomBits(), absl::kZeroPad16)));
  }
  const auto stop = [this] {
    return cancelled_ || (options_.connect.keep_waiting && !options_.connect.keep_waiting());
  };
  CAIRN_ASSIGN_OR_RETURN(
      auto connection,
      reach({.options = options_.connect, .task = task_, .backups = job_.backups > 0, .stop = stop}));
  client_ = std::make_unique<client::TrainingClient>(
      std::move(connection), variables_,
      client::TrainingOptions{.worker = options_.worker,
                              .task = task_,
                              .step_timeout = std::chrono::duration_cast<Duration>(options_.step_timeout)});
  return Enter();
}

TrainingSession::~TrainingSession() {
  if (client_ == nullptr) return;
  Leave(v1::LEAVE_REASON_STOPPED, "");
  checkpoints_.reset();  // waits until the last one is written
}

absl::Status TrainingSession::Enter() {
  if (chief()) CAIRN_RETURN_IF_ERROR(client_->Initialise(declared_, *checkpoints_));
  CAIRN_RETURN_IF_ERROR(client_->WaitReady(declared_));
  member_ = true;
  CAIRN_RETURN_IF_ERROR(client_->Join());
  const client::StartingPoint start = client_->start();
  position_ = job_.mode == Mode::kBoundedStaleness ? start.clock : start.position;
  entered_version_ = steps().version();
  if (!chief()) return absl::OkStatus();
  checkpoints_->CountFrom(entered_version_);
  // Servers that were restored have forgotten the settings.
  return groups_.empty() ? absl::OkStatus() : client_->control().SetGroups(groups_);
}

absl::Status TrainingSession::Run(absl::FunctionRef<absl::Status()> step) {
  for (;;) {
    absl::Status status;
    while (status.ok() && !finished()) status = step();
    if (status.ok()) status = End();
    if (status.ok()) return status;
    const absl::Status failure = Recover(status);
    if (failure.ok()) continue;
    Leave(FailsForAll(failure) ? v1::LEAVE_REASON_FAILED : v1::LEAVE_REASON_STOPPED,
          std::string(failure.message()));
    return failure;
  }
}

TrainingSession::Range TrainingSession::range_of(int variable) const {
  const net::VariableInfo& info = variables_[static_cast<size_t>(variable)];
  return {static_cast<size_t>(info.offset), static_cast<size_t>(info.shape.num_elements())};
}

int64_t TrainingSession::position() const {
  return job_.mode == Mode::kSync ? steps().version() - client_->start().version_offset : position_;
}

absl::Status TrainingSession::UnlessOver(absl::Status status) {
  if (!client::IsOver(status)) return status;
  over_ = true;
  return absl::OkStatus();
}

absl::Status TrainingSession::BeginStep(int64_t examples, absl::Span<const float> gradients) {
  if (state_ != StepState::kNone) return absl::FailedPreconditionError("BeginStep: a step is in progress");
  if (!member_) return absl::FailedPreconditionError("BeginStep: this worker is not a member of the job");
  if (gradients.empty()) gradients = gradients_.span();
  if (gradients.size() != values().size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("BeginStep: ", gradients.size(), " gradients for ", values().size(), " values"));
  }
  if (examples < 0 || examples > kMaxExamples) {
    return absl::InvalidArgumentError(
        absl::StrCat("BeginStep: ", examples, " examples, must be in [0, ", kMaxExamples, "]"));
  }
  int64_t position = position_ + 1;
  if (job_.work_queue.has_value() && !finished()) {
    const auto& work_items = steps().work().work_items();
    if (work_items.empty()) {
      return absl::FailedPreconditionError("BeginStep: there is no work item: AwaitWork() first");
    }
    const v1::WorkItem& current = work_items[0];
    if (examples != 0 && examples != current.count()) {
      return absl::InvalidArgumentError(
          absl::StrCat("BeginStep: ", examples, " examples, but the work item has ", current.count()));
    }
    position = current.epoch() * job_.work_queue->examples + current.first();
  }
  for (std::atomic<bool>& announced : announced_) announced = false;
  step_ = &steps().BeginStep(gradients, examples, position);
  state_ = StepState::kBegun;
  return absl::OkStatus();
}

absl::Status TrainingSession::Announce(int variable) {
  if (state_ != StepState::kBegun) return absl::FailedPreconditionError("Announce: no step is in progress");
  if (variable < 0 || variable >= static_cast<int>(variables_.size())) {
    return absl::InvalidArgumentError(
        absl::StrCat("Announce: no variable ", variable, ", there are ", variables_.size()));
  }
  if (announced_[static_cast<size_t>(variable)].exchange(true)) {
    return absl::FailedPreconditionError(absl::StrCat("Announce: the gradient of '",
                                                      variables_[static_cast<size_t>(variable)].name,
                                                      "' has been sent already in this step"));
  }
  step_->Announce(variable);
  return absl::OkStatus();
}

absl::StatusOr<client::StepResult> TrainingSession::FinishStep() {
  const bool polls = options_.connect.keep_waiting != nullptr;
  for (;;) {
    const TimePoint until = polls ? std::chrono::steady_clock::now() + kSlice : TimePoint::max();
    CAIRN_ASSIGN_OR_RETURN(const std::optional<client::StepResult> result, FinishStepUntil(until));
    if (result.has_value()) return *result;
    if (!options_.connect.keep_waiting()) return absl::CancelledError("the program ended the wait");
  }
}

absl::StatusOr<std::optional<client::StepResult>> TrainingSession::FinishStepUntil(TimePoint until) {
  if (state_ == StepState::kNone) return absl::FailedPreconditionError("FinishStep: no step is in progress");
  if (state_ == StepState::kBegun) {
    for (size_t variable = 0; variable < announced_.size(); ++variable) {
      if (!announced_[variable].exchange(true)) step_->Announce(static_cast<int>(variable));
    }
    state_ = StepState::kFinishing;
  }
  auto result = step_->FinishUntil(until);
  if (result.ok() && !result->has_value()) return std::nullopt;
  state_ = StepState::kNone;
  if (!result.ok()) {
    CAIRN_RETURN_IF_ERROR(UnlessOver(result.status()));
    return client::StepResult{.outcome = v1::OUTCOME_FINISHED};
  }
  if ((*result)->outcome == v1::OUTCOME_ACCEPTED) ++position_;
  if (chief()) checkpoints_->AfterStep(client_->control(), steps().version());
  return result;
}

void TrainingSession::DropStep() {
  if (state_.exchange(StepState::kNone) != StepState::kNone) steps().Drop();
}

absl::Status TrainingSession::CancelStep() {
  if (state_ == StepState::kNone) return absl::FailedPreconditionError("CancelStep: no step is in progress");
  if (state_ == StepState::kFinishing) {
    return absl::FailedPreconditionError("CancelStep: its gradients may be in an update already");
  }
  DropStep();
  return absl::OkStatus();
}

absl::Status TrainingSession::AwaitWork() {
  if (!job_.work_queue.has_value())
    return absl::FailedPreconditionError("AwaitWork: the job has no work queue");
  if (finished() || !steps().work().work_items().empty()) return absl::OkStatus();
  return UnlessOver(steps().AwaitWork());
}

absl::Status TrainingSession::Pull() {
  if (state_ != StepState::kNone) return absl::FailedPreconditionError("Pull: a step is in progress");
  return UnlessOver(steps().Pull());
}

absl::Status TrainingSession::Recover(const absl::Status& failure) {
  absl::Status status = failure;
  while (!status.ok()) {
    DropStep();
    if (!UnlessOver(status).ok() && (cancelled_ || !client_->CanReconnectAfter(status))) return status;
    if (over_) return absl::OkStatus();
    recoveries_ = steps().version() > entered_version_ ? 0 : recoveries_ + 1;
    entered_version_ = steps().version();
    if (recoveries_ > kMaxRecoveries) return status;
    if (options_.connect.log) options_.connect.log(absl::StrCat(status.message(), "; joining again"));
    status = client_->Reconnect();
    if (status.ok()) status = Enter();
  }
  return absl::OkStatus();
}

absl::Status TrainingSession::EndAsChief() {
  client::ServerControl& control = client_->control();
  const auto limit = std::chrono::duration_cast<Duration>(options_.step_timeout);
  // A synchronous job makes no more updates. Once its last version is saved, a server failure cannot undo any
  // work.
  if (job_.mode == Mode::kSync)
    CAIRN_RETURN_IF_ERROR(checkpoints_->SaveNow(control, steps().version(), limit));
  CAIRN_RETURN_IF_ERROR(control.WaitForOthers(limit));
  // Only ps/0 knows when the work queue is empty, so this call ends the job on all servers.
  if (job_.work_queue.has_value() && job_.mode == Mode::kAsync) CAIRN_RETURN_IF_ERROR(control.EndTraining());
  CAIRN_RETURN_IF_ERROR(steps().Pull());
  CAIRN_RETURN_IF_ERROR(checkpoints_->SaveNow(control, steps().version(), limit));
  Leave(v1::LEAVE_REASON_FINISHED, "");
  return control.Finish();
}

absl::Status TrainingSession::End() {
  if (ended_) return absl::OkStatus();
  if (state_ != StepState::kNone) return absl::FailedPreconditionError("End: a step is in progress");
  if (over_) {
    member_ = false;
  } else if (chief()) {
    CAIRN_RETURN_IF_ERROR(EndAsChief());
  } else {
    Leave(v1::LEAVE_REASON_FINISHED, "");
    // If a server fails before the chief has saved, this worker's updates are lost and must be computed again.
    CAIRN_RETURN_IF_ERROR(UnlessOver(client_->AwaitEnd()));
  }
  ended_ = true;
  return absl::OkStatus();
}

void TrainingSession::Leave(v1::LeaveReason reason, const std::string& message) {
  DropStep();
  if (std::exchange(member_, false)) client_->Leave(reason, message);
}

void TrainingSession::Cancel() {
  cancelled_ = true;
  client_->Interrupt(absl::CancelledError("cancelled by the program"));
}

absl::StatusOr<client::JobControl*> TrainingSession::Control() {
  if (chief()) return &client_->control();
  return absl::FailedPreconditionError(absl::StrCat("only worker 0, the chief, may do this, not ", task_));
}

absl::Status TrainingSession::SetGroups(std::vector<v1::GroupSettings> groups) {
  CAIRN_RETURN_IF_ERROR(Control().status());
  if (state_ != StepState::kNone) return absl::FailedPreconditionError("SetGroups: a step is in progress");
  if (static_cast<int>(groups.size()) != declared_.variable_groups_size()) {
    return absl::InvalidArgumentError(absl::StrCat("SetGroups: settings for ", groups.size(),
                                                   " groups, but the job has ",
                                                   declared_.variable_groups_size()));
  }
  const auto same = [](const v1::GroupSettings& a, const v1::GroupSettings& b) {
    return a.has_learning_rate() == b.has_learning_rate() && a.learning_rate() == b.learning_rate() &&
           a.untouched() == b.untouched();
  };
  if (std::equal(groups.begin(), groups.end(), groups_.begin(), groups_.end(), same)) return absl::OkStatus();
  CAIRN_RETURN_IF_ERROR(client_->control().SetGroups(groups));
  groups_ = std::move(groups);
  return absl::OkStatus();
}

absl::Status TrainingSession::SaveCheckpoint() {
  CAIRN_ASSIGN_OR_RETURN(client::JobControl* const control, Control());
  if (options_.checkpoint_directory.empty()) {
    return absl::FailedPreconditionError("SaveCheckpoint: SessionOptions::checkpoint_directory is empty");
  }
  return checkpoints_->SaveNow(*control, steps().version(),
                               std::chrono::duration_cast<Duration>(options_.step_timeout));
}

}  // namespace cairn::api
