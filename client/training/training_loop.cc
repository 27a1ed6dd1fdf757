#include "client/training/training_loop.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "client/job_end.h"
#include "common/core/status.h"
#include "common/system/entropy.h"

namespace cairn::client {
namespace {

// The maximum number of attempts to become a member again without an update in between. Servers that restart
// several times need a few; after more failures, another attempt does not help.
constexpr int kMaxRecoveries = 10;

v1::LeaveReason ReasonFor(const absl::Status& failure) {
  return ExitCodeOf(failure) == ExitCode::kFailure && !absl::IsCancelled(failure) ? v1::LEAVE_REASON_FAILED
                                                                                  : v1::LEAVE_REASON_STOPPED;
}

TrainingLoop::Options WithRunId(TrainingLoop::Options options) {
  if (options.chief.has_value()) {
    options.job.set_run_id(absl::StrCat(absl::Hex(DrawRandomBits(), absl::kZeroPad16)));
  }
  return options;
}

}  // namespace

TrainingLoop::TrainingLoop(Options options)
    : options_(WithRunId(std::move(options))), membership_(options_.membership), steps_(options_.steps) {}

absl::Status TrainingLoop::Initialise() {
  if (!options_.chief.has_value()) return absl::OkStatus();
  return membership_.Initialise(options_.job, options_.chief->source);
}

absl::Status TrainingLoop::JoinOnce() {
  CAIRN_RETURN_IF_ERROR(membership_.WaitReady(options_.job));
  has_left_ = false;
  CAIRN_RETURN_IF_ERROR(membership_.Join());
  member_ = true;
  // With bounded staleness, a returning worker continues at least at the slowest worker's clock. All clocks
  // must reach the same end, or the others would wait for this worker.
  const StartingPoint start = membership_.start();
  position_ = options_.job.mode() == v1::MODE_SSP ? start.clock : start.position;
  entered_version_ = steps_.version();
  if (options_.chief.has_value() && options_.chief->snapshots != nullptr) {
    options_.chief->snapshots->CountFrom(entered_version_);
  }
  return options_.on_joined ? options_.on_joined() : absl::OkStatus();
}

absl::Status TrainingLoop::Join() {
  return Recover(JoinOnce());
}

absl::Status TrainingLoop::Run(absl::FunctionRef<absl::Status()> step) {
  absl::Status status;
  do {
    while (status.ok() && !finished()) status = step();
    if (status.ok()) status = End();
    if (status.ok()) return status;
    status = Recover(status);
  } while (status.ok());
  return status;
}

absl::Status TrainingLoop::Recover(const absl::Status& failure) {
  absl::Status status = UnlessOver(failure);
  while (!status.ok()) {
    if (interrupted_ || !membership_.CanReconnectAfter(status)) return status;
    recoveries_ = steps_.version() > entered_version_ ? 0 : recoveries_ + 1;
    entered_version_ = steps_.version();
    if (recoveries_ > kMaxRecoveries) return status;
    if (options_.on_recovery) options_.on_recovery(status);
    status = membership_.Reconnect();
    if (status.ok()) status = Initialise();
    if (status.ok()) status = JoinOnce();
    status = UnlessOver(std::move(status));
  }
  return status;
}

absl::Status TrainingLoop::UnlessOver(absl::Status status) {
  if (!IsOver(status)) return status;
  over_ = std::move(status);
  return absl::OkStatus();
}

int64_t TrainingLoop::position() const {
  return sync() ? steps_.version() - membership_.start().version_offset : position_;
}

int64_t TrainingLoop::PositionAfterStep() const {
  if (!options_.job.dynamic_sharding() || steps_.work().work_items().empty()) return position_ + 1;
  const v1::WorkItem& next = steps_.work().work_items(0);
  return next.epoch() * options_.job.num_examples() + next.first();
}

absl::Status TrainingLoop::AwaitWork() {
  if (finished() || !steps_.work().work_items().empty()) return absl::OkStatus();
  return UnlessOver(steps_.AwaitWork());
}

void TrainingLoop::AfterStep() {
  if (!options_.chief.has_value() || options_.chief->snapshots == nullptr) return;
  options_.chief->snapshots->AfterStep(options_.chief->control, steps_.version());
}

absl::Status TrainingLoop::SaveNow(Duration limit) {
  if (!options_.chief.has_value() || options_.chief->snapshots == nullptr) return absl::OkStatus();
  return options_.chief->snapshots->SaveNow(options_.chief->control, steps_.version(), limit);
}

absl::Status TrainingLoop::End() {
  if (ended_) return absl::OkStatus();
  if (!over_.ok()) {
    member_ = false;
  } else if (options_.chief.has_value()) {
    CAIRN_RETURN_IF_ERROR(EndAsChief());
  } else {
    Leave(v1::LEAVE_REASON_FINISHED, "");
    // If a server fails before the chief has saved, this worker's updates are lost and must be computed
    // again. So the worker waits for the end of the job.
    CAIRN_RETURN_IF_ERROR(UnlessOver(membership_.AwaitEnd()));
  }
  has_left_ = true;
  ended_ = true;
  return absl::OkStatus();
}

absl::Status TrainingLoop::EndAsChief() {
  JobControl& control = options_.chief->control;
  // A synchronous job makes no more updates. Once its last version is saved, a server failure cannot undo any
  // work.
  if (sync()) CAIRN_RETURN_IF_ERROR(SaveNow(options_.step_timeout));
  CAIRN_RETURN_IF_ERROR(control.WaitForOthers(options_.step_timeout));
  // Only ps/0 knows when the data is used up, so this call ends the job on all servers.
  if (options_.job.dynamic_sharding() && options_.job.mode() == v1::MODE_ASYNC) {
    CAIRN_RETURN_IF_ERROR(control.EndTraining());
  }
  // Other workers may have made updates after the chief's last step.
  CAIRN_RETURN_IF_ERROR(steps_.Pull());
  CAIRN_RETURN_IF_ERROR(SaveNow(options_.step_timeout));
  if (options_.before_end) CAIRN_RETURN_IF_ERROR(options_.before_end());
  Leave(v1::LEAVE_REASON_FINISHED, "");
  return control.Finish();
}

void TrainingLoop::Leave(v1::LeaveReason reason, const std::string& message) {
  member_ = false;
  if (has_left_) return;
  // A worker that has finished may still fail before the end of the job, and then leaves again.
  has_left_ = reason != v1::LEAVE_REASON_FINISHED;
  membership_.Leave(reason, message);
}

void TrainingLoop::LeaveAfter(const absl::Status& failure) {
  if (!failure.ok()) Leave(ReasonFor(failure), std::string(failure.message()));
}

void TrainingLoop::Interrupt(absl::Status reason) {
  interrupted_ = true;
  membership_.Interrupt(std::move(reason));
}

}  // namespace cairn::client
