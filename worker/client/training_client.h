// A worker's side of training: declares or learns the job, keeps the lease, and exchanges gradients for
// values.
//
//   Open ─► [chief: Initialise] ─► WaitReady ─► Join ─► { BeginStep, Announce..., FinishStep } ─► Leave ─►
//   [chief: Finish]
//             ▲                                                       │ a server lost its variables, or
//             └─────────────────────── Reconnect ◄────────────────────┘ this worker its lease
//
// One step is one round trip per server: the gradients go up while backward still runs, and the values that
// the update left come back in the answer, of a synchronous job while gradients still go up. Values arrive in
// a second buffer and are swapped in by FinishStep, so parameters() never changes under a running
// computation. A forward pass may begin on those that have come (AwaitComing).
//
// Calls come from one thread, but for Announce (any). Every call that waits has a limit.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "cairn/v1/job.pb.h"
#include "cairn/v1/session.pb.h"
#include "common/core/aligned_buffer.h"
#include "common/core/clock.h"
#include "common/core/mutex.h"
#include "common/core/trace.h"
#include "common/net/placement.h"
#include "worker/client/connection.h"
#include "worker/client/exchange.h"
#include "worker/client/heartbeats.h"
#include "worker/client/job_setup.h"
#include "worker/client/snapshot.h"
#include "worker/client/step_pushes.h"
#include "worker/client/wire_meters.h"

namespace cairn::client {

struct TrainingOptions {
  // Position among the cluster's trainers, the chief first; an elastic job finds a number for `task`.
  int worker = 0;
  std::string task;  // "worker/0"
  Duration step_timeout = std::chrono::seconds(600);
  // net::PlacementOptions::split_bytes.
  int64_t split_bytes = 0;
  // Asked before each heartbeat by its thread, for those who look. May be null.
  std::function<v1::WorkerReport()> report{};
  TraceRecorder* trace = nullptr;  // may be; has the times of pushes and pulls
  WireMeters* wire = nullptr;      // may be; what steps take on the wire
};

class TrainingClient final : public Exchange {
 public:
  // `variables`: the model's, with offsets in a flat buffer without gaps.
  TrainingClient(std::unique_ptr<Connection> connection, std::vector<net::VariableInfo> variables,
                 TrainingOptions options);
  // Leaves nothing behind but, without Leave(), a lease that runs out.
  ~TrainingClient() override;

  // --- Before training ---

  // The chief's: makes the servers ready unless they are. When some of them have lost their variables, or all
  // since this client was last a member, all are set back together to what `source` finds for that case.
  // FAILED_PRECONDITION when they train a job other than `job` (but for what changes in its course). Errors
  // of the source.
  absl::Status Initialise(const v1::Job& job, StateSource& source) override;
  // Everybody's: waits for all servers to have variables, then checks that their job is `job` and that they
  // hold `variables`.
  absl::Status WaitReady(const v1::Job& job) override;
  // Becomes a member, starts heartbeats, and pulls the values: parameters(), version() and position() are
  // set.
  absl::Status Join() override;
  // After a step, or another call, that ended with ABORTED: forgets the membership and reaches all servers
  // again, whichever processes they are now. Initialise() and WaitReady() then begin anew. After Interrupt(),
  // and when the servers are not there within their limit, it fails.
  absl::Status Reconnect() override;
  // What Reconnect() can mend: this worker's own place; what a server has lost, where the chief keeps
  // snapshots or this worker had not joined yet.
  bool CanReconnectAfter(const absl::Status& failure) const override;

  // --- Steps ---

  // Values of one version, in the variables' order; after a join and a step, as they travel in this job
  // (Job.wire). Constant between FinishStep and FinishStep.
  absl::Span<const float> parameters() const override { return parameters_.span(); }
  // Where parameters() lie, now or later, for as long as this object lives.
  std::array<absl::Span<const float>, 2> parameter_buffers() const override {
    return {parameters_.span(), incoming_.span()};
  }
  // Their version; in an asynchronous job, where servers may count each for itself, that on ps/0.
  int64_t version() const override { return versions_[0]; }
  int64_t version_offset() const override { return job_.job.resumed().version_offset(); }
  // How many batches of this worker's part of the data were part of updates when it joined.
  int64_t position() const override { return position_; }
  // In a job of bounded staleness, how many pushes this worker counted as having made when it joined; else 0.
  int64_t clock_at_join() const override { return clock_at_join_; }
  // The job has made its last update.
  bool finished() const override { return finished_; }
  // With dynamic sharding: as ps/0 said when it last answered a join, a step or AwaitWork().
  const v1::Work& work() const override { return work_; }

  // Opens a push of the gradients in `gradients` (parallel to parameters()) of `examples` examples computed
  // from parameters(). `gradients` must stay valid until FinishStep has returned or this object is destroyed,
  // and unchanged once announced.
  // `position`: of its part of the data, batches that the worker has behind it with this one; with dynamic
  // sharding, the number of its ticket's first example (PushBegin.position).
  void BeginStep(absl::Span<const float> gradients, int64_t examples, int64_t position = 0) override;
  // The gradient of this variable is final. Once for each variable between BeginStep and FinishStep; with 0
  // examples not needed.
  void Announce(int variable) override;
  // Ends the push.
  absl::Span<const float> ComingParameters() override;
  bool AwaitComing(int variable) override { return pushes_.AwaitValues(variable); }
  // Waits for the answers; afterwards parameters() are the values that the decision about the push left.
  // Broken streams are opened again and pushes repeated until the step's limit: DEADLINE_EXCEEDED or
  // UNAVAILABLE then name the server and what the round waits for. ABORTED when a server has been restarted
  // or this worker has lost its lease.
  absl::StatusOr<StepResult> FinishStep() override;

  // With dynamic sharding, when work() has no ticket: waits for one, or for the end of the job, and pulls the
  // values that there are then. UNAVAILABLE, saying what is missing, when the step's limit is over.
  absl::Status AwaitWork() override;

  // Pulls the current values, exact whatever the job's wire is: of one version on all servers, but in an
  // asynchronous job whose optimizer takes no norms.
  absl::Status Pull() override;

  // --- The chief's, between steps ---

  // Of the next update, on ps/0.
  absl::StatusOr<float> LearningRate() override;
  // Of all updates from now on: from the same version on everywhere, but in an asynchronous job without norms
  // as each server hears of it. INVALID_ARGUMENT while a schedule gives it.
  absl::Status SetLearningRate(float rate) override;
  // Ends the job for all: no server makes another update, likewise. Afterwards finished() is true and
  // parameters() are the last ones.
  absl::Status EndTraining() override;
  // Puts `values`, parallel to parameters(), in the place of the servers', and pulls them. For when nobody
  // else trains.
  absl::Status Write(absl::Span<const float> values) override;

  // A snapshot here, to be read by ReadSnapshot(connection(), ...).
  absl::StatusOr<MarkedSnapshot> MarkSnapshot();
  absl::StatusOr<TakenSnapshot> TakeSnapshot() override;
  // A server that kept the snapshot may be lost, and its copy take its place.
  absl::Status MendSnapshot(const absl::Status& failure) override;
  Connection& connection() { return *connection_; }

  // Ends what waits, and what will, with `reason`. Any thread.
  void Interrupt(absl::Status reason) override ABSL_LOCKS_EXCLUDED(mutex_);

  // --- The end ---

  // Best effort: tells the servers, within a few seconds.
  void Leave(v1::LeaveReason reason, const std::string& message) override;
  // The chief's: waits until all other workers have left or lost their lease.
  absl::Status WaitForOthers(Duration timeout) override;
  // After Leave(), everybody's but the chief's: waits for the end of training where the job may be set back
  // before (client::AwaitEnd); its patience is the step's limit.
  absl::Status AwaitEnd() override;
  // The chief's: tells every server that training is over.
  absl::Status Finish() override;
  // Counters as ps/0 has them.
  absl::StatusOr<v1::Counters> ServerCounters() override;
  // With dynamic sharding, at the job's end: what was missed and repeated, over all servers.
  absl::StatusOr<v1::DataPosition> UsedData() override;

 private:
  // Repeats `attempt` while it ends with UNAVAILABLE or DEADLINE_EXCEEDED, at most for the step's limit.
  // ABORTED when a server has been restarted.
  absl::Status Persist(absl::FunctionRef<absl::Status()> attempt);
  // Connection::Describe(0); where there are copies, again until the step's limit.
  absl::StatusOr<v1::ConnectResponse> DescribeLeader();
  // A repetition after a lost answer is one more incarnation, which nobody has used.
  absl::Status JoinOnce();
  // Sends it, numbered, to every server that sequences.
  absl::Status Amend(const v1::Amendment& amendment);
  // Reads everything into incoming_ and swaps it in. UNAVAILABLE when a stream broke.
  absl::Status PullOnce(v1::Encoding encoding);
  // Pull(), as the answers to pushes bring the values.
  absl::Status PullForStep();
  absl::StatusOr<StepResult> AwaitAnswers();
  // OK: none.
  absl::Status interruption() const ABSL_LOCKS_EXCLUDED(mutex_);
  // That, or what the heartbeats have found.
  absl::Status failure() const ABSL_LOCKS_EXCLUDED(mutex_);

  const std::unique_ptr<Connection> connection_;
  const std::vector<net::VariableInfo> variables_;
  const TrainingOptions options_;
  const int64_t size_;  // elements of all variables

  // Constant from WaitReady() or Join() on, until Reconnect().
  LearntJob job_;
  int64_t begun_generation_ = -1;  // the chief's last
  uint64_t incarnation_ = 0;
  int64_t clock_at_join_ = 0;
  int worker_;  // its number in the job

  // The calling thread's.
  AlignedBuffer parameters_, incoming_;
  std::vector<int64_t> versions_;  // [server] of parameters_; equal in a synchronous job
  // Likewise, where they came by a pull, 0 elsewhere; and how they travelled.
  std::vector<uint64_t> editions_;
  v1::Encoding editions_encoding_ = v1::ENCODING_FLOAT32;
  bool finished_ = false;
  v1::Work work_;
  int64_t position_ = 0;
  int64_t step_ = 0;
  bool push_ended_ = true;  // that of step_
  int64_t reads_ = 0;
  int64_t amendments_ = 0;

  mutable Mutex mutex_;
  absl::Status interruption_ ABSL_GUARDED_BY(mutex_);
  const v1::Process process_;  // to the servers
  Heartbeats heartbeats_;
  StepPushes pushes_;
};

}  // namespace cairn::client
