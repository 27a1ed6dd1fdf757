// The life of the job that one server hosts, as a state machine: which job is active, under which incarnation
// and epoch this server has its shard, what callers may do now, and how the job ends.
//
//   EMPTY ──Create──► INITIALISING ──values written──► READY ──Finish──► FINISHED
//                      (Create again restarts)         │ └──Fail──► FAILED
//                             ▲                        │
//                             └─Create, next generation┘
//
// With ps_replication, one process has the shard's primary and another has its backup:
//
//   EMPTY ──BecomeBackup──► BACKUP ──Promote──► READY ── Drop, when its own backup replaces it ──► EMPTY
//
// A replicated job is READY only when its first backup is in sync (awaits_backup()).
//
// Owned by HostedJob. Not thread-safe: guarded by the lock of its owner, which passes the time. Makes and ends
// no job: the owner does, outside that lock where it takes long.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cairn/v1/job.pb.h"
#include "cairn/v1/parameter_server.pb.h"
#include "cairn/v1/replicate.pb.h"
#include "common/core/clock.h"
#include "common/core/status.h"
#include "ps/job/active_job.h"

namespace cairn::ps {

class JobLifecycle {
 public:
  // `shard`, `host`: "ps/1", the shard, and "ps/0", the process that has it; for messages. `process` differs
  // between processes.
  JobLifecycle(std::string shard, std::string host, uint64_t process);

  v1::State state() const { return state_; }
  bool is_backup() const { return state_ == v1::STATE_BACKUP; }
  bool shut_down() const { return shut_down_; }
  // In FAILED, the reason; otherwise OK.
  const absl::Status& failure() const { return failure_; }
  // Null in EMPTY, and possibly in FINISHED.
  const std::shared_ptr<ActiveJob>& job() const { return job_; }
  // The shard's incarnation; in a backup, its primary's.
  uint64_t incarnation() const { return incarnation_; }
  // The shard's epoch, if this server serves it; otherwise 0.
  int64_t epoch() const { return epoch_; }
  // In READY: since when.
  std::optional<TimePoint> ready_at() const;
  bool is_initialising(uint64_t layout) const {
    return state_ == v1::STATE_INITIALISING && job_->layout() == layout;
  }
  // The job has its values, and waits until its backup is in sync.
  bool awaits_backup() const { return state_ == v1::STATE_INITIALISING && awaits_backup_; }
  // The reason why CONDITION_READY does not hold yet.
  std::string WhatReadyAwaits() const;

  // --- Checks ---
  // UNAVAILABLE if this is a backup, or no longer serves the shard.
  absl::Status CheckServes() const;
  // The job, if it is READY or FINISHED. Otherwise its failure or, if the client must first wait for
  // CONDITION_READY, ABORTED.
  absl::StatusOr<std::shared_ptr<ActiveJob>> ReadyJob() const;
  // ABORTED if the variables have changed since this layout, or if this process never had it.
  absl::StatusOr<std::shared_ptr<ActiveJob>> JobForLayout(uint64_t layout) const;
  // The job whose sequencer runs here. UNAVAILABLE while this server does not have it.
  absl::StatusOr<std::shared_ptr<ActiveJob>> JobToFollow(const std::string& run_id, int64_t generation) const;
  // FAILED_PRECONDITION if another job is active and `job` does not continue it. `primary_is_heard`: as
  // BackupState::primary_is_heard().
  absl::Status CheckReplaceable(const v1::Job& job, bool primary_is_heard) const;
  // Whether this server serves the shard although the caller has been promoted in its place.
  bool IsBehind(const v1::ReplicationOrigin& origin) const;
  // ABORTED if this server has been promoted in place of the caller; FAILED_PRECONDITION if it has another
  // job. `backup_epoch`: of the primary that feeds this backup.
  absl::Status CheckMayBackUp(const v1::ReplicationOrigin& origin, int64_t backup_epoch) const;

  // Whether the client knows, by the seal of a server, a later epoch of the shard that is served here.
  bool IsOutdated(const v1::ConnectRequest& request) const;
  // The state, the failure, and the sealed epoch.
  void Describe(v1::ConnectResponse& response) const;

  // --- Transitions ---
  // Layouts of different processes differ, so requests meant for an earlier process are refused.
  uint64_t DrawLayout() { return ++last_layout_; }
  // The incarnation of a job that is created now. It differs from a backup's, which is that of its primary:
  // clients of that primary would take a server with the same one for an outdated primary.
  uint64_t NextIncarnation() const;
  // To INITIALISING or, for MODE_VARIABLES, READY. Returns the job that `job` replaces, or null.
  std::shared_ptr<ActiveJob> Create(std::shared_ptr<ActiveJob> job);
  // Stays INITIALISING: the values are complete, and the backup is not in sync. False if that was known.
  bool AwaitBackup() { return !std::exchange(awaits_backup_, true); }
  // From INITIALISING to READY.
  void BecomeReady(TimePoint now);
  // To BACKUP. Returns the job that `copy` replaces, or null.
  std::shared_ptr<ActiveJob> BecomeBackup(std::shared_ptr<ActiveJob> copy, uint64_t incarnation);
  // From BACKUP to READY.
  void Promote(int64_t epoch, TimePoint now);
  // An operator is about to cancel the job on every server. A failure within kCancelLimit is taken for the
  // cancellation, because members may learn of it from another server first.
  void AnnounceCancel(TimePoint now);
  // To FINISHED. For an operator (`cancelled`) a job does not finish: returns true if the caller must fail it.
  bool Finish(bool cancelled);
  // To FAILED. False if the job has already ended.
  bool Fail(absl::Status failure, TimePoint now);
  // To EMPTY, as if the process had just started. Returns the job, or null; nullopt, without effect, after the
  // job's end.
  std::optional<std::shared_ptr<ActiveJob>> Drop();
  void Shutdown() { shut_down_ = true; }

  // --- The end ---
  // Whether the operator is known to have cancelled the job that failed.
  bool WasCancelled() const;
  // How the task ends; nullopt while it continues. A failed job's server first notifies its clients, for at
  // most kFailureLinger; `all_left`: no member is left.
  std::optional<ExitCode> Ended(TimePoint now, bool all_left) const;

 private:
  // The last shard that this server served and has dropped.
  struct Dropped {
    std::string run_id{};
    int64_t generation = -1, epoch = 0;
  };

  const std::string shard_, host_;
  const uint64_t process_;
  v1::State state_ = v1::STATE_EMPTY;
  std::shared_ptr<ActiveJob> job_;
  bool awaits_backup_ = false;  // set by AwaitBackup() for job_
  TimePoint ready_at_;
  absl::Status failure_;
  TimePoint failed_at_;
  bool cancelled_ = false;  // Finish() has been called by an operator
  std::optional<TimePoint> cancel_announced_at_{};
  bool shut_down_ = false;
  uint64_t last_layout_;
  uint64_t incarnation_;
  int64_t epoch_ = 0;
  uint64_t drops_ = 0;  // backups and shards that this server gave up, each with an incarnation
  Dropped dropped_;
};

}  // namespace cairn::ps
