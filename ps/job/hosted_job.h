// The job that one server hosts, as the primary or as the backup of its shard: makes it, replaces it, ends it,
// and holds the calls that wait for it. This class puts together what the state machines decide: JobLifecycle,
// BackupState, WaitList and BatchMeans.
//
// Owned by a Server. Thread-safe: one lock guards the state machines. Calls do not block. Replies run outside
// the lock. Lock order: HostedJob, JobMembers, sequencer, shard, replicator.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "cairn/v1/parameter_server.pb.h"
#include "cairn/v1/replicate.pb.h"
#include "common/core/clock.h"
#include "common/core/mutex.h"
#include "common/core/status.h"
#include "ps/job/active_job.h"
#include "ps/job/backup_state.h"
#include "ps/job/batch_means.h"
#include "ps/job/job_lifecycle.h"
#include "ps/job/replicated_answer.h"
#include "ps/job/retired_jobs.h"
#include "ps/job/wait_list.h"

namespace cairn::ps {

class HostedJob {
 public:
  // `host`: the seal key, the incarnation and the epoch are set for each job. `process` differs between
  // processes. `clock` must outlive this object.
  HostedJob(ActiveJob::Host host, uint64_t process, const Clock& clock);
  ~HostedJob() { Shutdown(); }

  // A consistent view of the current state.
  struct View {
    v1::State state = v1::STATE_EMPTY;
    absl::Status failure{};
    bool shut_down = false;
    absl::Status serves{};  // as JobLifecycle::CheckServes()
    uint64_t incarnation = 0;
    std::optional<TimePoint> ready_at{};
    size_t waiting_calls = 0;
    std::shared_ptr<ActiveJob> job{};  // may be null
  };
  View view() const ABSL_LOCKS_EXCLUDED(mutex_);
  // The current job; null if there is none.
  std::shared_ptr<ActiveJob> job() const ABSL_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(mutex_);
    return lifecycle_.job();
  }
  // As the functions of JobLifecycle.
  absl::StatusOr<std::shared_ptr<ActiveJob>> ReadyJob() const ABSL_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(mutex_);
    return lifecycle_.ReadyJob();
  }
  absl::StatusOr<std::shared_ptr<ActiveJob>> JobForLayout(uint64_t layout) const ABSL_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(mutex_);
    return lifecycle_.JobForLayout(layout);
  }
  absl::StatusOr<std::shared_ptr<ActiveJob>> JobToFollow(const std::string& run_id, int64_t generation) const
      ABSL_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(mutex_);
    return lifecycle_.JobToFollow(run_id, generation);
  }
  // Describes the state, after dropping the shard if the client proves that a backup has been promoted in
  // place of this server. Returns the current job, or null.
  std::shared_ptr<ActiveJob> Connect(const v1::ConnectRequest& request, v1::ConnectResponse& response)
      ABSL_LOCKS_EXCLUDED(mutex_);

  // The calls of parameter_server.proto. Create() returns the new layout.
  absl::StatusOr<uint64_t> Create(const v1::CreateRequest& request) ABSL_LOCKS_EXCLUDED(mutex_);
  void Wait(const v1::WaitRequest& request, Reply<v1::WaitResponse> reply) ABSL_LOCKS_EXCLUDED(mutex_);
  void BatchMean(const v1::BatchMeanRequest& request, Reply<v1::BatchMeanResponse> reply)
      ABSL_LOCKS_EXCLUDED(mutex_);
  void Finish(const v1::FinishRequest& request) ABSL_LOCKS_EXCLUDED(mutex_);
  // Returns the shard's new epoch.
  absl::StatusOr<int64_t> Promote(const v1::PromoteRequest& request) ABSL_LOCKS_EXCLUDED(mutex_);

  // The initial values of the job with this layout are complete.
  void OnInitialised(uint64_t layout) ABSL_LOCKS_EXCLUDED(mutex_);
  // Fails `job`, unless another job has replaced it. Null: fails the current job.
  void Fail(const absl::Status& failure, const ActiveJob* job = nullptr) ABSL_LOCKS_EXCLUDED(mutex_);
  // Answers the waiting calls whose condition holds, or whose time is over. Called when members have changed,
  // and regularly.
  void AnswerWaiting() ABSL_LOCKS_EXCLUDED(mutex_);
  // Called regularly. Sends heartbeats to the primary. On the primary, makes `job` ready when its first backup
  // is in sync, and drops it when it must be dropped. `job` may be null. Destroys retired jobs without users.
  void TickReplication(const std::shared_ptr<ActiveJob>& job) ABSL_LOCKS_EXCLUDED(mutex_);
  // As Server::ended().
  std::optional<ExitCode> ended() const ABSL_LOCKS_EXCLUDED(mutex_);
  // Answers every waiting and every later call with UNAVAILABLE.
  void Shutdown() ABSL_LOCKS_EXCLUDED(mutex_);

  // --- The streams of Replicate: the backup of a shard that another process serves ---
  // Starts a new backup. ABORTED if this server has been promoted in place of the caller. FAILED_PRECONDITION
  // if this server has another job or serves this shard. INVALID_ARGUMENT and RESOURCE_EXHAUSTED as in
  // Create().
  absl::StatusOr<std::shared_ptr<ActiveJob>> OpenBackup(const v1::ReplicationOrigin& origin,
                                                        std::shared_ptr<ReplicationSink> sink)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // Handles an item of the stream that `sink` belongs to: acknowledges it, unless `number` is 0, then carries
  // it out. An error ends the stream: ABORTED if this server has been promoted in place of the caller,
  // CANCELLED if this stream no longer feeds the backup.
  absl::Status OnReplicated(const ReplicationSink* sink, uint64_t number, const v1::ReplicationBody& body,
                            const ReplicatedFloats& floats) ABSL_LOCKS_EXCLUDED(mutex_);
  // The stream that `sink` belongs to has ended. `spoilt`: the backup is no longer consistent, and will not
  // be promoted.
  void BackupClosed(const ReplicationSink* sink, bool spoilt = false) ABSL_LOCKS_EXCLUDED(mutex_);
  // Whether this is a backup in sync, which may be promoted.
  bool backup_in_sync() const ABSL_LOCKS_EXCLUDED(mutex_);
  // Identifies the process; differs each time it is started.
  uint64_t process() const { return process_; }

 private:
  using Calls = WaitList::Calls;

  // "ps/1", the shard, and "ps/0", the process that has it.
  std::string shard() const { return absl::StrCat("ps/", host_.index); }
  std::string host() const { return absl::StrCat("ps/", host_.host_index); }
  ActiveJob::Host HostFor(uint64_t incarnation, const std::string& seal_key) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The job that the request asks for; if it only adds variables, with those of the current job.
  absl::StatusOr<std::shared_ptr<ActiveJob>> MakeJob(const v1::CreateRequest& request,
                                                     std::vector<net::Slice> slices)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<int64_t> PromoteLocked(const v1::PromoteRequest& request)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Forgets the job, as if the process had just started, unless another job has replaced it.
  void Drop(const ActiveJob& of, const std::string& why) ABSL_LOCKS_EXCLUDED(mutex_);

  const ActiveJob::Host host_;
  const uint64_t process_;
  const Clock& clock_;
  RetiredJobs retired_;

  mutable Mutex mutex_;
  JobLifecycle lifecycle_ ABSL_GUARDED_BY(mutex_);
  BackupState backup_ ABSL_GUARDED_BY(mutex_);  // used in STATE_BACKUP
  WaitList waiting_ ABSL_GUARDED_BY(mutex_);
  BatchMeans batch_means_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cairn::ps
