// The life of a worker in a job, apart from the computation of its gradients:
//
//   [chief: Initialise] ─► Join ─► steps ─► End          Run() makes the steps and all calls after them
//                            ▲       │       │
//                            └─ Recover ◄────┘ ABORTED: a membership or a server was lost
//
// It knows membership and steps by their interfaces, with parameter servers or without, and neither models nor
// data. Trainer (worker/training/trainer.h) and TrainingSession (api/training_session.h) are built on it: they
// make the steps.
//
// All calls come from one thread, except Interrupt() and interrupted() (any thread).
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "cairn/v1/job.pb.h"
#include "client/job_setup.h"
#include "client/training/job_control.h"
#include "client/training/membership.h"
#include "client/training/snapshot_saver.h"
#include "client/training/step_exchange.h"
#include "common/core/clock.h"

namespace cairn::client {

class TrainingLoop {
 public:
  // The parts of the chief's loop.
  struct Chief {
    JobControl& control;
    StateSource& source;
    SnapshotSaver* snapshots = nullptr;  // may be null
  };
  // All references must outlive the loop.
  struct Options {
    Membership& membership;
    StepExchange& steps;
    v1::Job job;                   // without the run_id, which the chief's loop draws
    std::optional<Chief> chief{};  // on the chief only
    Duration step_timeout;         // the limit for the other workers and the last snapshot at the end
    // The position() at which this worker is done although the job goes on, in a job that is not synchronous.
    int64_t last_position = std::numeric_limits<int64_t>::max();
    // Called when the worker has become a member, for the first time or again. A failure counts as one of
    // becoming a member. May be null.
    std::function<absl::Status()> on_joined{};
    // Called on the chief when no worker makes another update and the last one is saved, before the servers
    // end. After a failure, the servers do not end. May be null.
    std::function<absl::Status()> before_end{};
    // Called before each attempt to recover from a failure. May be null.
    std::function<void(const absl::Status& failure)> on_recovery{};
  };
  explicit TrainingLoop(Options options);

  // --- The life of the worker ---

  // On the chief, before anything else: declares the job to servers that have none. Does nothing on other
  // workers.
  absl::Status Initialise();
  // Waits for the job and becomes a member. Recovers from failures as Recover() does.
  absl::Status Join();
  // Calls `step` until the worker has finished(), then End(). Recovers from failures of both as Recover()
  // does. If a failure remains, the worker is still a member: LeaveAfter() follows.
  absl::Status Run(absl::FunctionRef<absl::Status()> step);
  // After a call that failed with `failure`: returns OK if the worker has become a member again, or if the
  // failure is that the job is over. Returns the last failure if Membership::CanReconnectAfter() rules
  // recovery out, after Interrupt(), and after 10 attempts without an update in between.
  absl::Status Recover(const absl::Status& failure);
  // Leaves the job with all work done, and waits for its end. The chief waits for all other workers first,
  // saves the last version, and ends the servers. May fail with ABORTED: Recover() and further steps.
  absl::Status End();
  // Leaves the job early, unless it has ended or the worker has left so before. Best effort.
  void Leave(v1::LeaveReason reason, const std::string& message);
  // Leaves after a failure: the job ends for all workers if the failure is permanent, and goes on without
  // this worker if it was stopped or if another process may succeed. Does nothing if `failure` is OK.
  void LeaveAfter(const absl::Status& failure);
  // Makes all calls that wait, now and later, fail with `reason`. Any thread.
  void Interrupt(absl::Status reason);
  // Any thread.
  bool interrupted() const { return interrupted_; }

  // --- Between the steps ---

  // Whether this worker makes no more steps: the job has made its last update, or is over(), or the worker is
  // at last_position.
  bool finished() const { return !over_.ok() || steps_.finished() || position_ >= options_.last_position; }
  // Whether the worker has joined and not left.
  bool member() const { return member_; }
  // Whether End() has returned OK.
  bool ended() const { return ended_; }
  // Not OK: the chief had ended the job before this worker was done. The status by which the worker learned
  // of it (IsOver).
  const absl::Status& over() const { return over_; }
  // Returns OK for the status that the job is over, after which the worker has finished(); otherwise
  // `status`.
  absl::Status UnlessOver(absl::Status status);

  // The number of the next step, in a sequence that is the same after recovery and after a restart: the
  // number of updates in a synchronous job, else the number of this worker's own steps.
  int64_t position() const;
  // A step has used position(). In a synchronous job position() follows the updates instead.
  void Advance() { ++position_; }
  // The position in the data after the next step, which its push carries (StepExchange::BeginStep). With
  // dynamic sharding: the number of the first example of the work item.
  int64_t PositionAfterStep() const;
  // With dynamic sharding: waits until a work item is assigned or the job is over.
  absl::Status AwaitWork();
  // To be called after each step: takes a snapshot on the chief if one is due.
  void AfterStep();
  // On the chief: SnapshotSaver::SaveNow(). OK if it takes no snapshots.
  absl::Status SaveNow(Duration limit);

 private:
  bool sync() const { return options_.job.mode() == v1::MODE_SYNC; }
  absl::Status JoinOnce();
  absl::Status EndAsChief();

  const Options options_;
  Membership& membership_;
  StepExchange& steps_;
  std::atomic<bool> interrupted_{false};

  bool member_ = false;
  bool has_left_ = true;  // by Leave(), or never joined: others do not wait for this worker
  bool ended_ = false;
  absl::Status over_;
  int64_t position_ = 0;         // this worker's own steps
  int64_t entered_version_ = 0;  // when the worker last became a member, or failed to
  int recoveries_ = 0;           // attempts without an update in between
};

}  // namespace cairn::client
