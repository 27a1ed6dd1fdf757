// A job as this worker has joined it: what the servers declared, this worker's number and incarnation in it,
// its lease, and whether the worker can go on.
//
// Owned by TrainingClient, whose parts share it. All calls come from one thread, except those marked "Any
// thread".
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cairn/v1/job.pb.h"
#include "client/heartbeats.h"
#include "client/job_setup.h"
#include "client/training/membership.h"
#include "client/transport/connection.h"
#include "common/core/clock.h"
#include "common/core/mutex.h"

namespace cairn::client {

class JoinedJob {
 public:
  struct Options {
    int worker = 0;    // TrainingOptions::worker
    std::string task;  // "worker/0"
    Duration step_timeout;
    std::function<v1::WorkerReport()> report;  // Heartbeats::Options::report
    // Called after each event that may end a wait: Interrupt(), or a finding of the heartbeats. Any thread.
    std::function<void()> changed;
  };
  struct Admission {
    StartingPoint start;
    v1::Work work;  // with dynamic sharding: the work assigned by ps/0
  };

  // `connection` must outlive this object.
  JoinedJob(Connection& connection, Options options);

  // Sets what the servers declared. Constant until the next call.
  void Learn(LearntJob learnt) { learnt_ = std::move(learnt); }
  // Becomes a member on all servers and starts heartbeats.
  absl::StatusOr<Admission> Join();
  // Stops the heartbeats and forgets their findings; waits for their threads.
  void StopHeartbeats() { heartbeats_.Stop(); }
  // Best effort: notifies the servers, within a few seconds.
  void Leave(v1::LeaveReason reason, const std::string& message);

  const LearntJob& learnt() const { return learnt_; }
  const std::string& task() const { return options_.task; }
  Duration step_timeout() const { return options_.step_timeout; }
  bool was_member() const { return incarnation_ != 0; }
  uint64_t incarnation() const { return incarnation_; }
  int worker() const { return worker_; }  // its number in the job
  // A marker that is unique in the life of the job.
  std::string NextMarker();
  // Reports the worker's step in its heartbeats.
  void set_step(int64_t step) { heartbeats_.set_step(step); }

  // Repeats `attempt` while it fails with UNAVAILABLE or DEADLINE_EXCEEDED, at most for the step's time
  // limit. ABORTED if a server has been restarted.
  absl::Status Persist(absl::FunctionRef<absl::Status()> attempt);

  // Any thread: makes all waits, now and later, fail with `reason`.
  void Interrupt(absl::Status reason) ABSL_LOCKS_EXCLUDED(mutex_);
  // Any thread: the reason of Interrupt(); OK: not called.
  absl::Status interruption() const ABSL_LOCKS_EXCLUDED(mutex_);
  // Any thread: interruption(), or the failure that the heartbeats have found.
  absl::Status failure() const ABSL_LOCKS_EXCLUDED(mutex_);
  // Any thread: Heartbeats::waiting_for().
  std::string waiting_for() const { return heartbeats_.waiting_for(); }

 private:
  // If an answer is lost, the repeated call draws a new incarnation. The first one is then never used.
  absl::StatusOr<Admission> JoinOnce();

  Connection& connection_;
  const Options options_;
  const v1::Process process_;  // this process, as described to the servers

  LearntJob learnt_;
  int worker_;
  uint64_t incarnation_ = 0;  // 0: never a member
  int64_t markers_ = 0;

  mutable Mutex mutex_;
  absl::Status interruption_ ABSL_GUARDED_BY(mutex_);
  Heartbeats heartbeats_;
};

}  // namespace cairn::client
