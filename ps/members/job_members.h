// The members of a job on one server: which worker may join, incarnations and their seals, leases, the last
// report of each worker, and the copy of the members on the backup.
//
// Owned by the ActiveJob; a new job, or a new generation, begins without members. Thread-safe, with a lock of
// its own, under which changes go to the replicator in their order. Lock order: HostedJob, JobMembers,
// sequencer, shard, replicator. Does not block, and knows no sequencer: the caller reports to it who has
// joined and left. The caller passes the time.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cairn/v1/inspector.pb.h"
#include "cairn/v1/job.pb.h"
#include "cairn/v1/parameter_server.pb.h"
#include "cairn/v1/replicate.pb.h"
#include "common/core/clock.h"
#include "common/core/mutex.h"
#include "ps/members/membership.h"
#include "ps/replication/replicator.h"

namespace cairn::ps {

class JobMembers {
 public:
  // A worker whose lease has expired, or that did not rejoin after a rollback.
  struct Lost {
    int worker;
    uint64_t incarnation;
    std::string reason;  // for the log
  };

  struct Options {
    std::string server;      // "ps/0", for messages
    int most_workers = 0;    // all worker numbers are below this limit
    std::string seal_key{};  // CreateRequest.seal_key
  };
  // `job` must outlive this object.
  JobMembers(const v1::Job& job, Options options);

  // Makes a worker a member. The response has the number, the incarnation and its seal.
  //   INVALID_ARGUMENT     the task is not in the job
  //   RESOURCE_EXHAUSTED   the elastic job has max_workers members
  //   PERMISSION_DENIED    no server of the job has given the worker the incarnation
  //   FAILED_PRECONDITION  another live process, which is named, is the worker
  //   UNAVAILABLE          it is not yet clear whether that process is alive
  //   ABORTED              the incarnation is of another generation, or the worker has been restarted since
  absl::StatusOr<v1::JoinResponse> Join(const v1::JoinRequest& request, TimePoint now)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // Renews the lease. ABORTED if this incarnation is not a member.
  absl::Status Heartbeat(const v1::HeartbeatRequest& request, TimePoint now) ABSL_LOCKS_EXCLUDED(mutex_);
  // False if this incarnation was not a member.
  bool Leave(int worker, uint64_t incarnation) ABSL_LOCKS_EXCLUDED(mutex_);
  // Removes members whose lease has run out and, if a job that was rolled back has been ready since
  // `ready_at` for long enough, those that have not joined again.
  std::vector<Lost> Expire(TimePoint now, std::optional<TimePoint> ready_at) ABSL_LOCKS_EXCLUDED(mutex_);
  // As Membership::StreamBroke() and HearAll().
  void StreamBroke(int worker, uint64_t incarnation) ABSL_LOCKS_EXCLUDED(mutex_);
  void HearAll(TimePoint when) ABSL_LOCKS_EXCLUDED(mutex_);

  // "worker/3"
  std::string NameOf(int worker) const ABSL_LOCKS_EXCLUDED(mutex_);
  // As NameOf(), but empty if no worker has this number.
  std::string TaskOf(int worker) const ABSL_LOCKS_EXCLUDED(mutex_);
  bool IsLive(int worker, uint64_t incarnation) const ABSL_LOCKS_EXCLUDED(mutex_);
  // ABORTED for a push of an incarnation that no server has given to the worker: the worker must join first.
  absl::Status CheckIncarnationGiven(int worker, uint64_t incarnation) const ABSL_LOCKS_EXCLUDED(mutex_);
  // As Membership::AllOthersLeft().
  bool AllOthersLeft(int worker, std::string* missing) const ABSL_LOCKS_EXCLUDED(mutex_);
  // One Member for each expected worker.
  void Describe(TimePoint now, v1::ServerStatus& status) const ABSL_LOCKS_EXCLUDED(mutex_);

  // --- Replication ---
  // From now on, the backup receives the changes: that a worker has joined, at once; that it has left, when
  // the caller calls SendToBackup(). To be called once; `replicator` must outlive the calls that follow.
  void ReplicateTo(Replicator* replicator) ABSL_LOCKS_EXCLUDED(mutex_);
  // Sends one member. The backup is informed last that a member has left, after the sequencer: if this server
  // fails before, the backup's own lease check finds the member.
  void SendToBackup(int worker) ABSL_LOCKS_EXCLUDED(mutex_);
  // Sends all members, as a complete state.
  void Capture() ABSL_LOCKS_EXCLUDED(mutex_);
  // On the backup. INVALID_ARGUMENT for a number that the job lacks.
  absl::Status Put(const v1::ReplicatedMember& member, TimePoint now) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  // The number of the worker that asks to join; in an elastic job, a new task gets a new number.
  absl::StatusOr<int> Admit(const v1::JoinRequest& request) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status CheckSealed(const v1::JoinRequest& request, int worker) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status CheckAvailable(const v1::JoinRequest& request, int worker, TimePoint now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void SendLocked(int worker) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const v1::Job& job_;
  const Options options_;

  mutable Mutex mutex_;
  Membership members_ ABSL_GUARDED_BY(mutex_);
  std::map<int, v1::WorkerReport> reports_ ABSL_GUARDED_BY(mutex_);  // [worker]: its last report
  Replicator* replicator_ ABSL_GUARDED_BY(mutex_) = nullptr;         // null: the job has no backup
};

}  // namespace cairn::ps
