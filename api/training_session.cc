#include "api/training_session.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "api/conversions.h"
#include "api/group_settings.h"
#include "api/optimizer_state.h"
#include "client/job_end.h"
#include "common/core/status.h"
#include "common/memory/out_of_memory.h"
#include "worker/tables/table_partitioner.h"

namespace cairn::api {
namespace {

// How long a wait for the answers to a step lasts between two calls of ConnectOptions::keep_waiting.
constexpr auto kSlice = std::chrono::milliseconds(100);
// Servers refuse larger weights.
constexpr int64_t kMaxExamples = std::numeric_limits<uint32_t>::max();

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
      announced_(variables_, job.variables.size()) {}

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
                            const absl::Status started = session->Start(reach);
                            // To a chief, a job at its end is a server that may accept another job later.
                            if (started.message() == client::TrainingIsOver().message()) {
                              return client::TrainingIsOver();
                            }
                            CAIRN_RETURN_IF_ERROR(started);
                            return session;
                          });
}

absl::Status TrainingSession::Start(const Reach& reach) {
  if (chief()) {
    CAIRN_ASSIGN_OR_RETURN(checkpoints_, Checkpoints::Create({.options = options_,
                                                              .job = job_,
                                                              .declared = declared_,
                                                              .variables = variables_,
                                                              .stopped = [this] { return stopped(); }}));
  }
  const auto stop = [this] { return stopped(); };
  CAIRN_ASSIGN_OR_RETURN(
      auto connection,
      reach({.options = options_.connect, .task = task_, .backups = job_.backups > 0, .stop = stop}));
  client_ = std::make_unique<client::TrainingClient>(
      std::move(connection), variables_,
      client::TrainingOptions{.worker = options_.worker,
                              .task = task_,
                              .step_timeout = options_.step_timeout,
                              .make_partitioner = &worker::TablePartitioner::Create});
  std::optional<client::TrainingLoop::Chief> chief_parts;
  if (chief()) {
    chief_parts.emplace(client::TrainingLoop::Chief{
        .control = client_->control(), .source = *checkpoints_, .snapshots = checkpoints_->saver()});
  }
  loop_.emplace(client::TrainingLoop::Options{.membership = *client_,
                                              .steps = client_->steps(),
                                              .job = declared_,
                                              .chief = chief_parts,
                                              .step_timeout = options_.step_timeout,
                                              .on_joined = [this] { return OnJoined(); },
                                              .on_recovery =
                                                  [this](const absl::Status& failure) {
                                                    if (options_.connect.log)
                                                      options_.connect.log(
                                                          absl::StrCat(failure.message(), "; joining again"));
                                                  }});
  CAIRN_RETURN_IF_ERROR(loop_->Initialise());
  CAIRN_RETURN_IF_ERROR(loop_->Join());
  return loop_->over();
}

TrainingSession::~TrainingSession() {
  if (!loop_.has_value()) return;
  Leave(v1::LEAVE_REASON_STOPPED, "");
  checkpoints_.reset();  // waits until the last one is written
}

absl::Status TrainingSession::OnJoined() {
  // Servers that were restored to a checkpoint have the settings of that time.
  if (!groups_.empty()) steps().SetGroups(groups_);
  return absl::OkStatus();
}

absl::Status TrainingSession::Run(absl::FunctionRef<absl::Status()> step) {
  CAIRN_RETURN_IF_ERROR(CheckNoStep("Run"));
  const absl::Status status = loop_->Run([&] {
    absl::Status made = step();
    if (made.ok() && finished()) made = CheckNoStep("Run");
    if (!made.ok()) DropStep();
    return made;
  });
  loop_->LeaveAfter(status);
  return status;
}

TrainingSession::Range TrainingSession::range_of(int variable) const {
  const net::VariableInfo& info = variables_[static_cast<size_t>(variable)];
  return {static_cast<size_t>(info.offset), static_cast<size_t>(info.shape.num_elements())};
}

absl::Status TrainingSession::CheckNoStep(const char* call) const {
  if (state_ == StepState::kNone) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(call, ": a step is in progress"));
}

absl::Status TrainingSession::BeginStep(int64_t examples, absl::Span<const float> gradients) {
  CAIRN_RETURN_IF_ERROR(CheckNoStep("BeginStep"));
  if (!loop_->member())
    return absl::FailedPreconditionError("BeginStep: this worker is not a member of the job");
  if (gradients.empty()) gradients = gradients_.span();
  if (gradients.size() != values().size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("BeginStep: ", gradients.size(), " gradients for ", values().size(), " values"));
  }
  if (examples < 0 || examples > kMaxExamples) {
    return absl::InvalidArgumentError(
        absl::StrCat("BeginStep: ", examples, " examples, must be in [0, ", kMaxExamples, "]"));
  }
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
  }
  announced_.Reset();
  rows_ = RowsState::kNone;
  rows_pushed_ = false;
  step_ = &steps().BeginStep(gradients, examples, loop_->PositionAfterStep());
  state_ = StepState::kBegun;
  return absl::OkStatus();
}

absl::Status TrainingSession::Announce(int variable) {
  if (state_ != StepState::kBegun) return absl::FailedPreconditionError("Announce: no step is in progress");
  CAIRN_RETURN_IF_ERROR(announced_.Add(variable));
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
    announced_.AddRest([this](int variable) { step_->Announce(variable); });
    state_ = StepState::kFinishing;
  }
  auto result = step_->FinishUntil(until);
  if (result.ok() && !result->has_value()) return std::nullopt;
  state_ = StepState::kNone;
  if (!result.ok()) {
    CAIRN_RETURN_IF_ERROR(loop_->UnlessOver(result.status()));
    return client::StepResult{.outcome = v1::OUTCOME_FINISHED};
  }
  if ((*result)->outcome == v1::OUTCOME_ACCEPTED) loop_->Advance();
  if (rows_ == RowsState::kWanted) rows_ = RowsState::kArrived;
  loop_->AfterStep();
  return result;
}

absl::Status TrainingSession::CheckRowsOfStep(const char* call, bool made) const {
  if (state_ != StepState::kBegun) {
    return absl::FailedPreconditionError(absl::StrCat(call, ": no step has begun"));
  }
  return made ? absl::FailedPreconditionError(absl::StrCat(call, ": called twice in a step"))
              : absl::OkStatus();
}

absl::Status TrainingSession::ReadRows(absl::Span<const RowsToRead> rows) {
  CAIRN_ASSIGN_OR_RETURN(const std::vector<client::RowValues> values, ToClient(job_, rows));
  return client_->rows()->ReadRows(values);
}

absl::Status TrainingSession::PushRows(absl::Span<const RowGradients> gradients) {
  CAIRN_RETURN_IF_ERROR(CheckRowsOfStep("PushRows", rows_pushed_));
  CAIRN_ASSIGN_OR_RETURN(const std::vector<client::RowGradients> pushed, ToClient(job_, gradients));
  CAIRN_RETURN_IF_ERROR(client_->rows()->PushRows(pushed));
  rows_pushed_ = true;
  return absl::OkStatus();
}

absl::Status TrainingSession::WantRows(absl::Span<const RowsToRead> rows) {
  CAIRN_RETURN_IF_ERROR(CheckRowsOfStep("WantRows", rows_ != RowsState::kNone));
  CAIRN_ASSIGN_OR_RETURN(const std::vector<client::RowValues> wanted, ToClient(job_, rows));
  CAIRN_RETURN_IF_ERROR(client_->rows()->WantRows(wanted));
  rows_ = RowsState::kWanted;
  return absl::OkStatus();
}

void TrainingSession::DropStep() {
  rows_ = RowsState::kNone;
  if (state_.exchange(StepState::kNone) != StepState::kNone) steps().Drop();
}

absl::StatusOr<TableContents> TrainingSession::ReadTable(int table) {
  CAIRN_RETURN_IF_ERROR(Control().status());
  if (table < 0 || table >= declared_.tables_size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("ReadTable: no table ", table, ", the job has ", declared_.tables_size()));
  }
  TableContents contents;
  CAIRN_RETURN_IF_ERROR(
      UseSnapshot("the rows of a table", [&](const client::TakenSnapshot& taken) -> absl::Status {
        CAIRN_ASSIGN_OR_RETURN(contents, ReadContents(taken, table, SnapshotLimit()));
        return absl::OkStatus();
      }));
  return contents;
}

client::ReadLimit TrainingSession::SnapshotLimit() {
  return {.timeout = options_.step_timeout, .stopped = [this] { return stopped(); }};
}

absl::Status TrainingSession::UseSnapshot(absl::string_view what,
                                          absl::FunctionRef<absl::Status(const client::TakenSnapshot&)> use) {
  CAIRN_ASSIGN_OR_RETURN(client::JobControl* const control, Control());
  const TimePoint deadline = std::chrono::steady_clock::now() + options_.step_timeout;
  // Servers keep one snapshot at a time: another one would end the checkpoint that is being written.
  if (client::SnapshotSaver* const saver = checkpoints_->saver(); saver != nullptr) {
    CAIRN_RETURN_IF_ERROR(saver->AwaitIdle(deadline));
  }
  return CatchOutOfMemory(what, [&] {
    return client::RetrySnapshot(*control, deadline, [&]() -> absl::Status {
      CAIRN_ASSIGN_OR_RETURN(const client::TakenSnapshot taken,
                             control->TakeSnapshot([this] { return stopped(); }));
      return use(taken);
    });
  });
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
  if (finished() || !steps().work().work_items().empty()) return absl::OkStatus();  // fetches no values
  rows_ = RowsState::kNone;
  return loop_->AwaitWork();
}

absl::Status TrainingSession::Pull() {
  CAIRN_RETURN_IF_ERROR(CheckNoStep("Pull"));
  rows_ = RowsState::kNone;
  return loop_->UnlessOver(steps().Pull());
}

absl::Status TrainingSession::Recover(const absl::Status& failure) {
  if (!failure.ok()) DropStep();
  rows_ = RowsState::kNone;
  return loop_->Recover(failure);
}

absl::Status TrainingSession::End() {
  if (!ended()) CAIRN_RETURN_IF_ERROR(CheckNoStep("End"));
  CAIRN_RETURN_IF_ERROR(loop_->End());
  if (checkpoints_ != nullptr) checkpoints_->Unlock();  // on the chief
  return absl::OkStatus();
}

void TrainingSession::Leave(v1::LeaveReason reason, const std::string& message) {
  DropStep();
  loop_->Leave(reason, message);
}

void TrainingSession::Cancel() {
  cancelled_ = true;
  loop_->Interrupt(absl::CancelledError("cancelled by the program"));
}

absl::StatusOr<client::JobControl*> TrainingSession::Control() {
  if (chief()) return &client_->control();
  return absl::FailedPreconditionError(absl::StrCat("only worker 0, the chief, may do this, not ", task_));
}

absl::Status TrainingSession::SetGroups(std::vector<v1::GroupSettings> groups) {
  CAIRN_RETURN_IF_ERROR(Control().status());
  CAIRN_RETURN_IF_ERROR(CheckNoStep("SetGroups"));
  if (static_cast<int>(groups.size()) != declared_.variable_groups_size()) {
    return absl::InvalidArgumentError(absl::StrCat("SetGroups: settings for ", groups.size(),
                                                   " groups, but the job has ",
                                                   declared_.variable_groups_size()));
  }
  if (std::equal(groups.begin(), groups.end(), groups_.begin(), groups_.end(), SameSettings)) {
    return absl::OkStatus();
  }
  CAIRN_RETURN_IF_ERROR(Annotate(CheckGroups(declared_, groups), "SetGroups"));
  CAIRN_ASSIGN_OR_RETURN(auto joined, JoinEqual(groups));
  steps().SetGroups(std::move(joined));
  groups_ = std::move(groups);
  return absl::OkStatus();
}

absl::StatusOr<OptimizerState> TrainingSession::ReadOptimizerState() {
  CAIRN_RETURN_IF_ERROR(Control().status());
  CAIRN_RETURN_IF_ERROR(CheckNoStep("ReadOptimizerState"));
  OptimizerState state;
  CAIRN_RETURN_IF_ERROR(
      UseSnapshot("the state of the optimizer", [&](const client::TakenSnapshot& taken) -> absl::Status {
        CAIRN_ASSIGN_OR_RETURN(const client::Snapshot snapshot,
                               taken.read(SnapshotLimit(), /*tables=*/nullptr));
        state = StateOf(snapshot, variables_, declared_.variable_groups_size());
        return absl::OkStatus();
      }));
  return state;
}

absl::Status TrainingSession::SaveCheckpoint() {
  CAIRN_RETURN_IF_ERROR(Control().status());
  if (options_.checkpoint_directory.empty()) {
    return absl::FailedPreconditionError("SaveCheckpoint: SessionOptions::checkpoint_directory is empty");
  }
  return loop_->SaveNow(options_.step_timeout);
}

}  // namespace cairn::api
