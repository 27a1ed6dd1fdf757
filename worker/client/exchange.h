// A worker's side of training, whoever takes its gradients for new values: parameter servers
// (training_client.h), or the other workers (worker/allreduce). What the trainer knows of either.
//
//   [chief: Initialise] ─► WaitReady ─► Join ─► { BeginStep, Announce..., [AwaitComing...], FinishStep } ─►
//   Leave ─► [chief: Finish]
//             ▲                                                       │ somebody was lost
//             └─────────────────────── Reconnect ◄────────────────────┘
//
// The implementations' headers say what each call means there. Calls come from one thread, but for Announce
// and Interrupt (any). Every call that waits has a limit.
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
#include "common/core/clock.h"
#include "worker/client/job_setup.h"
#include "worker/client/snapshot.h"

namespace cairn::client {

struct StepResult {
  // ps/0's; in an asynchronous job, where servers may decide each for itself, STALE when one of them said so.
  v1::Outcome outcome = v1::OUTCOME_UNSPECIFIED;
  int64_t staleness = 0;
  bool duplicate = false;   // an answer came to a repeated push
  bool as_awaited = false;  // parameters() are what AwaitComing() told of
};

// The state at one point of the job, which `read` fetches, once, from any thread; the exchange outlives it.
struct TakenSnapshot {
  int64_t version = 0;
  std::function<absl::StatusOr<Snapshot>(Duration limit)> read;
};

class Exchange {
 public:
  virtual ~Exchange() = default;

  // --- Before training ---
  virtual absl::Status Initialise(const v1::Job& job, StateSource& source) = 0;  // the chief's
  virtual absl::Status WaitReady(const v1::Job& job) = 0;
  virtual absl::Status Join() = 0;
  virtual absl::Status Reconnect() = 0;
  virtual bool CanReconnectAfter(const absl::Status& failure) const = 0;

  // --- Steps ---
  virtual absl::Span<const float> parameters() const = 0;
  virtual std::array<absl::Span<const float>, 2> parameter_buffers() const = 0;
  virtual int64_t version() const = 0;
  // v1::Progress::version_offset of where the job was resumed.
  virtual int64_t version_offset() const { return 0; }
  virtual int64_t position() const = 0;
  virtual int64_t clock_at_join() const = 0;
  virtual bool finished() const = 0;
  virtual const v1::Work& work() const = 0;
  virtual void BeginStep(absl::Span<const float> gradients, int64_t examples, int64_t position) = 0;
  // Whether the workers' devices add up gradients between themselves, as of the last Join(). Then a step
  // begins so: `gradients` are in the memory of this worker's device, and not defined after the step; `mean`,
  // on the host, is written until FinishStep() returns, or, when the step fails before, until Join() or
  // Leave() does.
  virtual bool adds_up_on_device() const { return false; }
  virtual void BeginStepOnDevice(absl::Span<float> /*gradients*/, absl::Span<float> /*mean*/,
                                 int64_t /*examples*/) {}
  virtual void Announce(int variable) = 0;
  // When all is announced, before FinishStep(): where the values come that parameters() will be, and, for
  // each variable, whether they are there, waiting for that. Whatever AwaitComing() said,
  // StepResult::as_awaited decides. None and false where they do not come before the step's end.
  virtual absl::Span<const float> ComingParameters() { return {}; }
  virtual bool AwaitComing(int /*variable*/) { return false; }
  virtual absl::StatusOr<StepResult> FinishStep() = 0;
  virtual absl::Status AwaitWork() = 0;
  virtual absl::Status Pull() = 0;

  // --- The chief's, between steps ---
  virtual absl::StatusOr<float> LearningRate() = 0;
  virtual absl::Status SetLearningRate(float rate) = 0;
  virtual absl::Status EndTraining() = 0;
  virtual absl::Status Write(absl::Span<const float> values) = 0;
  virtual absl::StatusOr<TakenSnapshot> TakeSnapshot() = 0;
  // OK when another snapshot may be had after one that ended with `failure`; otherwise that, or what came of
  // looking. Blocks for a moment.
  virtual absl::Status MendSnapshot(const absl::Status& failure) = 0;

  virtual void Interrupt(absl::Status reason) = 0;

  // --- The end ---
  virtual void Leave(v1::LeaveReason reason, const std::string& message) = 0;
  virtual absl::Status WaitForOthers(Duration timeout) = 0;
  // Everybody's but the chief's, after Leave().
  virtual absl::Status AwaitEnd() = 0;
  virtual absl::Status Finish() = 0;
  virtual absl::StatusOr<v1::Counters> ServerCounters() = 0;
  virtual absl::StatusOr<v1::DataPosition> UsedData() = 0;
};

}  // namespace cairn::client
