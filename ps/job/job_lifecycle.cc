#include "ps/job/job_lifecycle.h"

#include <chrono>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/net/security/seal.h"

namespace cairn::ps {
namespace {

// How long the server of a failed job stays alive to notify its clients.
constexpr auto kFailureLinger = std::chrono::seconds(10);
// How long an announced cancellation may take to come.
constexpr auto kCancelLimit = std::chrono::seconds(10);

// The facts that the seal of an epoch covers.
std::vector<std::string> EpochFacts(uint64_t incarnation, int64_t epoch) {
  return {"epoch", absl::StrCat(incarnation), absl::StrCat(epoch)};
}

}  // namespace

JobLifecycle::JobLifecycle(std::string shard, std::string host, uint64_t process)
    : shard_(std::move(shard)),
      host_(std::move(host)),
      process_(process),
      last_layout_(process),
      incarnation_(process) {}

std::optional<TimePoint> JobLifecycle::ready_at() const {
  return state_ == v1::STATE_READY ? std::optional(ready_at_) : std::nullopt;
}

std::string JobLifecycle::WhatReadyAwaits() const {
  if (state_ == v1::STATE_EMPTY) return "the chief has not declared the job";
  if (!awaits_backup_) return "the chief has not written the variables";
  return absl::StrCat("the backup on ", job_->backup_name(), " is not in sync yet");
}

absl::Status JobLifecycle::CheckServes() const {
  if (is_backup()) {
    return absl::UnavailableError(
        absl::StrCat(host_, " has the backup of ", shard_, "'s shard, and does not serve it"));
  }
  if (job_ == nullptr && drops_ > 0) {
    return absl::UnavailableError(absl::StrCat(host_, " does not serve ", shard_, "'s shard any more"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<ActiveJob>> JobLifecycle::ReadyJob() const {
  if (shut_down_) return absl::UnavailableError(absl::StrCat(shard_, " is stopping"));
  if (state_ == v1::STATE_FAILED) return failure_;
  CAIRN_RETURN_IF_ERROR(CheckServes());
  if (job_ == nullptr || state_ == v1::STATE_INITIALISING) {
    return absl::AbortedError(absl::StrCat(shard_, " has no variables yet"));
  }
  return job_;
}

absl::StatusOr<std::shared_ptr<ActiveJob>> JobLifecycle::JobForLayout(uint64_t layout) const {
  if (shut_down_) return absl::UnavailableError(absl::StrCat(shard_, " is stopping"));
  if (state_ == v1::STATE_FAILED) return failure_;
  CAIRN_RETURN_IF_ERROR(CheckServes());
  if (job_ == nullptr) {
    return absl::AbortedError(absl::StrCat(shard_, " has been restarted and has no variables: layout ",
                                           layout, " is not known here"));
  }
  if (job_->layout() != layout) {
    return absl::AbortedError(absl::StrCat("the variables of ", shard_, " have changed: layout ", layout,
                                           " is now ", job_->layout()));
  }
  return job_;
}

absl::StatusOr<std::shared_ptr<ActiveJob>> JobLifecycle::JobToFollow(const std::string& run_id,
                                                                     int64_t generation) const {
  if (shut_down_ || job_ == nullptr || job_->job().run_id() != run_id ||
      job_->job().generation() != generation || job_->sequencer() == nullptr || is_backup()) {
    return absl::UnavailableError(
        absl::StrCat(shard_, " does not sequence generation ", generation, " of job ", run_id));
  }
  return job_;
}

absl::Status JobLifecycle::CheckReplaceable(const v1::Job& job, bool primary_is_heard) const {
  if (state_ == v1::STATE_FINISHED) return absl::FailedPreconditionError("training is over");
  if (state_ == v1::STATE_EMPTY) return absl::OkStatus();
  const bool same_run = job_->job().run_id() == job.run_id();
  if (same_run && job.generation() < job_->job().generation()) {
    return absl::FailedPreconditionError(absl::StrCat("cannot start generation ", job.generation(),
                                                      " of job ", job.run_id(), ": generation ",
                                                      job_->job().generation(), " is under way"));
  }
  const bool goes_on = same_run && job.generation() > job_->job().generation();
  if (is_backup()) {
    return goes_on || (!same_run && !primary_is_heard) ? absl::OkStatus() : CheckServes();
  }
  if (state_ == v1::STATE_INITIALISING || (state_ == v1::STATE_READY && goes_on)) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("job ", job_->job().run_id(), " is under way, at version ",
                   job_->shard().store().current().version, "; `cairn job cancel` ends it"));
}

bool JobLifecycle::IsBehind(const v1::ReplicationOrigin& origin) const {
  const bool serves = state_ == v1::STATE_READY || state_ == v1::STATE_INITIALISING;
  if (!serves || job_->job().run_id() != origin.job().run_id()) return false;
  return std::pair(job_->job().generation(), epoch_) < std::pair(origin.job().generation(), origin.epoch());
}

absl::Status JobLifecycle::CheckMayBackUp(const v1::ReplicationOrigin& origin, int64_t backup_epoch) const {
  if (shut_down_) return absl::UnavailableError(absl::StrCat(host_, " is stopping"));
  const bool same_run = job_ != nullptr && job_->job().run_id() == origin.job().run_id();
  const bool ended = state_ == v1::STATE_FINISHED || state_ == v1::STATE_FAILED;
  if (state_ != v1::STATE_EMPTY && !is_backup() && (ended || !same_run)) {
    return absl::FailedPreconditionError(absl::StrCat(host_, " serves another job, or has ended"));
  }
  if (state_ != v1::STATE_EMPTY && !is_backup()) {
    return absl::AbortedError(absl::StrCat(host_, " has been promoted in place of ", shard_));
  }
  // This server was promoted in place of the caller. The caller does not know that, and lacks everything that
  // this server has answered since.
  if (dropped_.run_id == origin.job().run_id() && dropped_.epoch > origin.epoch() &&
      dropped_.generation >= origin.job().generation()) {
    return absl::AbortedError(
        absl::StrCat(host_, " has been promoted in place of ", shard_, ", and has dropped the shard since"));
  }
  if (is_backup() && same_run && backup_epoch > origin.epoch() &&
      job_->job().generation() >= origin.job().generation()) {
    return absl::AbortedError(
        absl::StrCat(host_, " has the backup of the server promoted in place of ", shard_));
  }
  return absl::OkStatus();
}

bool JobLifecycle::IsOutdated(const v1::ConnectRequest& request) const {
  return job_ != nullptr && !is_backup() && request.incarnation() == incarnation_ &&
         request.epoch() > epoch_ &&
         net::SealHolds(job_->seal_key(), EpochFacts(incarnation_, request.epoch()), request.epoch_seal());
}

void JobLifecycle::Describe(v1::ConnectResponse& response) const {
  response.set_state(state_);
  response.set_incarnation(incarnation_);
  if (incarnation_ != process_) response.set_process(process_);
  response.set_epoch(epoch_);
  if (job_ != nullptr && epoch_ > 0) {
    response.set_epoch_seal(net::SealOf(job_->seal_key(), EpochFacts(incarnation_, epoch_)));
  }
  response.set_failure(std::string(failure_.message()));
  response.set_failure_code(static_cast<int>(failure_.code()));
}

uint64_t JobLifecycle::NextIncarnation() const {
  return is_backup() ? process_ + drops_ + 1 : incarnation_;
}

std::shared_ptr<ActiveJob> JobLifecycle::Create(std::shared_ptr<ActiveJob> job) {
  incarnation_ = NextIncarnation();
  if (is_backup()) ++drops_;
  state_ = job->job().mode() == v1::MODE_VARIABLES ? v1::STATE_READY : v1::STATE_INITIALISING;
  awaits_backup_ = false;
  return std::exchange(job_, std::move(job));
}

void JobLifecycle::BecomeReady(TimePoint now) {
  state_ = v1::STATE_READY;
  ready_at_ = now;
}

std::shared_ptr<ActiveJob> JobLifecycle::BecomeBackup(std::shared_ptr<ActiveJob> copy, uint64_t incarnation) {
  state_ = v1::STATE_BACKUP;
  incarnation_ = incarnation;
  return std::exchange(job_, std::move(copy));
}

void JobLifecycle::Promote(int64_t epoch, TimePoint now) {
  epoch_ = epoch;
  BecomeReady(now);
}

void JobLifecycle::AnnounceCancel(TimePoint now) {
  // A repeated announcement must not make the failure that an earlier one explains look older than it.
  if (state_ != v1::STATE_FAILED) cancel_announced_at_ = now;
}

bool JobLifecycle::Finish(bool cancelled) {
  // A job may have failed already because a worker learned of the end from another server.
  const bool has_job =
      state_ == v1::STATE_INITIALISING || state_ == v1::STATE_READY || state_ == v1::STATE_FAILED;
  if (has_job && cancelled) {
    cancelled_ = true;
  } else if (state_ != v1::STATE_FAILED) {
    state_ = v1::STATE_FINISHED;
  }
  return has_job && cancelled;
}

bool JobLifecycle::Fail(absl::Status failure, TimePoint now) {
  if (state_ == v1::STATE_FAILED || state_ == v1::STATE_FINISHED) return false;
  state_ = v1::STATE_FAILED;
  failure_ = std::move(failure);
  failed_at_ = now;
  return true;
}

std::optional<std::shared_ptr<ActiveJob>> JobLifecycle::Drop() {
  if (state_ == v1::STATE_FINISHED || state_ == v1::STATE_FAILED) return std::nullopt;
  if (job_ != nullptr && !is_backup()) {
    dropped_ = {.run_id = job_->job().run_id(), .generation = job_->job().generation(), .epoch = epoch_};
  }
  state_ = v1::STATE_EMPTY;
  incarnation_ = process_ + ++drops_;
  epoch_ = 0;
  awaits_backup_ = false;
  return std::exchange(job_, nullptr);
}

bool JobLifecycle::WasCancelled() const {
  return cancelled_ ||
         (cancel_announced_at_.has_value() && state_ == v1::STATE_FAILED &&
          failed_at_ - *cancel_announced_at_ <= kCancelLimit && failed_at_ >= *cancel_announced_at_);
}

std::optional<ExitCode> JobLifecycle::Ended(TimePoint now, bool all_left) const {
  if (state_ == v1::STATE_FINISHED) return ExitCode::kDone;
  if (state_ != v1::STATE_FAILED) return std::nullopt;
  // The operator's call must still find this server, after all members have left.
  const bool call_may_come = WasCancelled() && !cancelled_;
  const bool notified = all_left && !call_may_come;
  if (!notified && now - failed_at_ <= kFailureLinger) return std::nullopt;
  return WasCancelled() ? ExitCode::kDone : ExitCodeOf(failure_);
}

}  // namespace cairn::ps
