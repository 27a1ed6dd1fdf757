// The steps of a worker: turns its gradients into new values, with parameter servers (server_steps.h) or with
// the other workers alone (worker/allreduce).
//
//   BeginStep ─► Announce(variable)... ─► [ComingParameters ─► AwaitComing(variable)...] ─► Finish
//
// All calls come from one thread, except Step::Announce() and MeanOverWorkers() (any thread). Every call that waits has
// a time limit.
#pragma once

#include <array>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "cairn/v1/job.pb.h"
#include "cairn/v1/session.pb.h"

namespace cairn::client {

struct StepResult {
  // The outcome on ps/0. In an asynchronous job, where each server may decide for itself: STALE if any server
  // answered STALE.
  v1::Outcome outcome = v1::OUTCOME_UNSPECIFIED;
  int64_t staleness = 0;
  bool duplicate = false;   // the answer belongs to a repeated push
  bool as_awaited = false;  // parameters() equals what AwaitComing() announced
};

// The current step of a StepExchange, which owns it. Valid until Finish() has returned or, if the step is not
// finished, until the next step begins or the worker rejoins or leaves the job.
class Step {
 public:
  virtual ~Step() = default;
  // The gradient of this variable is final. To be called once for each variable; not needed with 0 examples.
  virtual void Announce(int variable) = 0;
  // Early access to the next parameters, between the last Announce() and Finish(). ComingParameters() is the
  // buffer that they arrive in. AwaitComing() blocks until the values of a variable have arrived; it returns
  // false if they will not arrive before Finish(). The values are valid only if Finish() then reports
  // `as_awaited`. By default there is no early access.
  virtual absl::Span<const float> ComingParameters() { return {}; }
  virtual bool AwaitComing(int /*variable*/) { return false; }
  // For layers that normalize by the batches of all workers, in a synchronous job: replaces each value by its mean over
  // the workers, each weighted by its examples. All workers with examples make the same calls in the same order, before
  // the last Announce(). Any thread, one call at a time. Blocks until all have made the call, at most for the step's
  // time limit; then UNAVAILABLE, naming those that have not. ABORTED if the worker must rejoin the job.
  virtual absl::Status MeanOverWorkers(absl::Span<double> /*values*/) {
    return absl::UnimplementedError("these steps make no means over workers");
  }
  // In place of those calls, by a worker without examples in this step: the others do not wait for it.
  virtual absl::Status SkipMeans() { return absl::OkStatus(); }
  // Ends the step: waits for the outcome, and sets parameters() and version() of the exchange. ABORTED if the
  // worker must rejoin the job.
  virtual absl::StatusOr<StepResult> Finish() = 0;
};

class StepExchange {
 public:
  virtual ~StepExchange() = default;

  // The values of all variables, in the model's order. Constant during a step.
  virtual absl::Span<const float> parameters() const = 0;
  // The two buffers that parameters() alternates between, for the lifetime of this object.
  virtual std::array<absl::Span<const float>, 2> parameter_buffers() const = 0;
  // The number of updates applied to parameters().
  virtual int64_t version() const = 0;
  // Whether the job has made its last update.
  virtual bool finished() const = 0;
  // With dynamic sharding: the work that is assigned to this worker.
  virtual const v1::Work& work() const = 0;

  // Begins a step with `gradients`, parallel to parameters(), of `examples` examples. `gradients` must stay
  // valid until Step::Finish() has returned or the worker has left, and must not change once announced.
  // `position`: the worker's position in the data after this batch.
  virtual Step& BeginStep(absl::Span<const float> gradients, int64_t examples, int64_t position) = 0;
  // Whether the workers' devices sum gradients among themselves, since the worker joined. If so, steps begin
  // with BeginStepOnDevice(): `gradients` are in the memory of this worker's device and undefined after the
  // step. `mean` is on the host; it is written until Step::Finish() returns or, if the step fails earlier,
  // until the worker has rejoined or left.
  virtual bool adds_up_on_device() const { return false; }
  // Like BeginStep(). To be called only if adds_up_on_device().
  virtual Step& BeginStepOnDevice(absl::Span<float> gradients, absl::Span<float> mean, int64_t examples) = 0;

  // With dynamic sharding, if work() is empty: waits until work is assigned or the job ends.
  virtual absl::Status AwaitWork() = 0;
  // Sets parameters() to the current values.
  virtual absl::Status Pull() = 0;
};

}  // namespace cairn::client
