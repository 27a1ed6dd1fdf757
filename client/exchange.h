// A worker's side of training: turns its gradients into new values, with parameter servers
// (training_client.h) or with the other workers alone (worker/allreduce). The trainer uses this interface
// only.
//
//   [chief: Initialise] ─► WaitReady ─► Join ─► steps ─► Leave ─► [chief: Finish]
//                              ▲                  │
//                              └─── Reconnect ◄───┘ a task failed (ABORTED)
//
//   step: BeginStep ─► Announce(variable)... ─► [ComingParameters, AwaitComing(variable)...] ─► FinishStep
//
// The headers of the implementations document each call in detail. All calls come from one thread, except
// Announce and Interrupt (any thread). Every call that waits has a time limit.
#pragma once

#include <array>
#include <cstdint>
#include <functional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "cairn/v1/job.pb.h"
#include "cairn/v1/parameter_server.pb.h"
#include "cairn/v1/session.pb.h"
#include "client/job_setup.h"
#include "client/snapshot.h"
#include "common/core/clock.h"

namespace cairn::client {

struct StepResult {
  // The outcome on ps/0. In an asynchronous job, where each server may decide for itself: STALE if any server
  // answered STALE.
  v1::Outcome outcome = v1::OUTCOME_UNSPECIFIED;
  int64_t staleness = 0;
  bool duplicate = false;   // the answer belongs to a repeated push
  bool as_awaited = false;  // parameters() equals what AwaitComing() announced
};

// The state at one point of the job. `read` fetches the state, once, from any thread; the exchange must
// outlive it.
struct TakenSnapshot {
  int64_t version = 0;
  std::function<absl::StatusOr<Snapshot>(Duration limit)> read;
};

class Exchange {
 public:
  virtual ~Exchange() = default;

  // --- Before training ---
  // For the chief: provides the first values, or those of a checkpoint, unless the job is running.
  virtual absl::Status Initialise(const v1::Job& job, StateSource& source) = 0;
  // Waits until the job is ready, and checks that it is `job`.
  virtual absl::Status WaitReady(const v1::Job& job) = 0;
  // Becomes a member of the job and fetches the values: sets parameters(), version() and position().
  virtual absl::Status Join() = 0;
  // After a call that failed with ABORTED: prepares for a new Initialise(), WaitReady() and Join().
  virtual absl::Status Reconnect() = 0;
  // Whether Reconnect() can recover from `failure`.
  virtual bool CanReconnectAfter(const absl::Status& failure) const = 0;

  // --- Steps ---
  // The values of all variables, in the model's order. Constant between two calls of FinishStep().
  virtual absl::Span<const float> parameters() const = 0;
  // The two buffers that parameters() alternates between, for the lifetime of this object.
  virtual std::array<absl::Span<const float>, 2> parameter_buffers() const = 0;
  // The number of updates applied to parameters().
  virtual int64_t version() const = 0;
  // v1::Progress::version_offset at the point where the job was resumed.
  virtual int64_t version_offset() const { return 0; }
  // The number of this worker's batches that were in updates when it joined.
  virtual int64_t position() const = 0;
  // With bounded staleness: the number of pushes counted for this worker when it joined. Otherwise 0.
  virtual int64_t clock_at_join() const = 0;
  // Whether the job has made its last update.
  virtual bool finished() const = 0;
  // With dynamic sharding: the work that is assigned to this worker.
  virtual const v1::Work& work() const = 0;
  // Begins a step with `gradients`, parallel to parameters(), of `examples` examples. `gradients` must stay
  // valid until FinishStep() has returned, and must not change once announced. `position`: the worker's
  // position in the data after this batch.
  virtual void BeginStep(absl::Span<const float> gradients, int64_t examples, int64_t position) = 0;
  // Whether the workers' devices sum gradients among themselves, as of the last Join(). If so, steps begin
  // with BeginStepOnDevice(): `gradients` are in the memory of this worker's device and undefined after the
  // step. `mean` is on the host; it is written until FinishStep() returns or, if the step fails earlier,
  // until Join() or Leave() returns.
  virtual bool adds_up_on_device() const { return false; }
  virtual void BeginStepOnDevice(absl::Span<float> /*gradients*/, absl::Span<float> /*mean*/,
                                 int64_t /*examples*/) {}
  // The gradient of this variable is final. To be called once per variable and step.
  virtual void Announce(int variable) = 0;
  // Early access to the next parameters, between the last Announce() and FinishStep(). ComingParameters() is
  // the buffer that they arrive in. AwaitComing() blocks until the values of a variable have arrived; it
  // returns false if they will not arrive before FinishStep(). The values are valid only if FinishStep() then
  // reports `as_awaited`. By default there is no early access.
  virtual absl::Span<const float> ComingParameters() { return {}; }
  virtual bool AwaitComing(int /*variable*/) { return false; }
  // Ends the step: waits for the outcome, and sets parameters() and version().
  virtual absl::StatusOr<StepResult> FinishStep() = 0;
  // With dynamic sharding, if work() is empty: waits until work is assigned or the job ends.
  virtual absl::Status AwaitWork() = 0;
  // Sets parameters() to the current values.
  virtual absl::Status Pull() = 0;

  // --- For the chief, between steps ---
  // The learning rate of the next update.
  virtual absl::StatusOr<float> LearningRate() = 0;
  // Sets the learning rate of all later updates.
  virtual absl::Status SetLearningRate(float rate) = 0;
  // Ends the job before its last version, for all workers.
  virtual absl::Status EndTraining() = 0;
  // Replaces all values.
  virtual absl::Status Write(absl::Span<const float> values) = 0;
  // Takes a snapshot of values, optimizer slots and progress at the current point of the job.
  virtual absl::StatusOr<TakenSnapshot> TakeSnapshot() = 0;
  // Returns OK if another snapshot may succeed after one failed with `failure`; otherwise `failure`, or the
  // error of the attempt to find out. Blocks briefly.
  virtual absl::Status CheckSnapshotMayBeRetried(const absl::Status& failure) = 0;

  // Makes all calls that wait, now and later, fail with `reason`. Any thread.
  virtual void Interrupt(absl::Status reason) = 0;

  // --- The end ---
  // Leaves the job, for `reason`. Best effort.
  virtual void Leave(v1::LeaveReason reason, const std::string& message) = 0;
  // For the chief: waits until all other workers have finished or have failed.
  virtual absl::Status WaitForOthers(Duration timeout) = 0;
  // For all workers but the chief, after Leave(): waits for the end of training.
  virtual absl::Status AwaitEnd() = 0;
  // For the chief: ends training for all tasks.
  virtual absl::Status Finish() = 0;
  // The counters of accepted, stale and other pushes.
  virtual absl::StatusOr<v1::Counters> ServerCounters() = 0;
  // With dynamic sharding, at the end of the job: the examples that were missed and repeated.
  virtual absl::StatusOr<v1::DataPosition> UsedData() = 0;
};

}  // namespace cairn::client
