// A worker's side of training with parameter servers: declares or learns the job, keeps the lease, and
// exchanges gradients for values.
//
//   Open ─► [chief: Initialise] ─► WaitReady ─► Join ─► steps ─► Leave ─► [chief: Finish]
//                                      ▲                  │ a server lost its variables,
//                                      └─── Reconnect ◄───┘ or this worker its lease
//
//   step: BeginStep ─► Announce(variable)... ─► FinishStep
//
// A step takes one round trip per server. Gradients are sent while the backward pass still runs, and the
// answer brings the values after the update; in a synchronous job they begin to arrive while gradients are
// still being sent. The values arrive in a second buffer, which FinishStep swaps in, so parameters() never
// changes during a computation. A forward pass may begin with the values that have arrived (AwaitComing).
//
// All calls come from one thread, except Announce and Interrupt (any thread). Every call that waits has a
// time limit.
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
#include "client/exchange.h"
#include "client/gradients/wire_metrics.h"
#include "client/heartbeats.h"
#include "client/job_setup.h"
#include "client/snapshot.h"
#include "client/step_pushes.h"
#include "client/transport/connection.h"
#include "common/core/clock.h"
#include "common/core/mutex.h"
#include "common/memory/aligned_buffer.h"
#include "common/net/cluster/placement.h"
#include "common/trace/trace.h"

namespace cairn::client {

struct TrainingOptions {
  // Position among the cluster's trainers, the chief first. An elastic job assigns a number to `task`
  // instead.
  int worker = 0;
  std::string task;  // "worker/0"
  Duration step_timeout = std::chrono::seconds(600);
  // net::PlacementOptions::split_bytes.
  int64_t split_bytes = 0;
  // Called before each heartbeat to ps/0, by its thread, for the servers' displays. May be null.
  std::function<v1::WorkerReport()> report{};
  TraceRecorder* trace = nullptr;  // may be null; records pushes and pulls
  WireMetrics* wire = nullptr;     // may be null; counts bytes on the wire
};

class TrainingClient final : public Exchange {
 public:
  // `variables`: the model's, with gapless offsets in a flat buffer.
  TrainingClient(std::unique_ptr<Connection> connection, std::vector<net::VariableInfo> variables,
                 TrainingOptions options);
  // Without Leave(), a lease remains until it expires. Nothing else is left behind.
  ~TrainingClient() override;

  // --- Before training ---

  // For the chief: creates the variables on the servers, unless they are ready. If some servers have lost
  // their variables, or if all servers have lost them since this client was last a member, all servers are
  // rolled back together to the state that `source` finds. FAILED_PRECONDITION if they train a job other than
  // `job` (settings that may change during training are not compared). Errors of `source`.
  absl::Status Initialise(const v1::Job& job, StateSource& source) override;
  // For every worker: waits until all servers have variables, then checks that their job is `job` and that
  // they store `variables`.
  absl::Status WaitReady(const v1::Job& job) override;
  // Becomes a member, starts heartbeats and pulls the values: sets parameters(), version() and position().
  absl::Status Join() override;
  // After a step or another call failed with ABORTED: gives up the membership and connects to all servers
  // again, including restarted ones. Initialise() and WaitReady() follow. Fails after Interrupt(), and if the
  // servers cannot be reached within their time limit.
  absl::Status Reconnect() override;
  // True for ABORTED if the chief takes snapshots, this worker has not joined yet, or all servers still have
  // their variables.
  bool CanReconnectAfter(const absl::Status& failure) const override;

  // --- Steps ---

  // The values of one version, in the order of the variables. After a join or a step they have the precision
  // of the wire (Job.wire). Constant between two calls of FinishStep.
  absl::Span<const float> parameters() const override { return parameters_.span(); }
  // The two buffers that parameters() alternates between, for the lifetime of this object.
  std::array<absl::Span<const float>, 2> parameter_buffers() const override {
    return {parameters_.span(), incoming_.span()};
  }
  // The version of parameters(). In an asynchronous job, where each server may count its own versions: the
  // version on ps/0.
  int64_t version() const override { return versions_[0]; }
  int64_t version_offset() const override { return job_.job.resumed().version_offset(); }
  // How many batches of this worker's share of the data were in updates when it joined.
  int64_t position() const override { return position_; }
  // With bounded staleness: the number of pushes counted for this worker when it joined. Otherwise 0.
  int64_t clock_at_join() const override { return clock_at_join_; }
  // Whether the job has made its last update.
  bool finished() const override { return finished_; }
  // With dynamic sharding: the assigned work item, from ps/0's last answer to a join, a step or AwaitWork().
  const v1::Work& work() const override { return work_; }

  // Begins a push of `gradients` (parallel to parameters()), computed from parameters() with `examples`
  // examples. `gradients` must stay valid until FinishStep has returned or this object is destroyed, and must
  // not change once announced. `position`: the number of batches of its share of the data that the worker has
  // finished, this one included; with dynamic sharding, the number of the first example of the work item
  // (PushBegin.position).
  void BeginStep(absl::Span<const float> gradients, int64_t examples, int64_t position = 0) override;
  // The gradient of this variable is final. To be called once for each variable between BeginStep and
  // FinishStep; not needed with 0 examples.
  void Announce(int variable) override;
  // Ends the push and returns the buffer that the new values arrive in.
  absl::Span<const float> ComingParameters() override;
  bool AwaitComing(int variable) override { return pushes_.AwaitValues(variable); }
  // Waits for the answers. Afterwards parameters() are the values after the servers' decision about the push.
  // Reopens broken streams and repeats their pushes until the step's time limit. Then DEADLINE_EXCEEDED or
  // UNAVAILABLE, with the server and the workers that the round waits for. ABORTED if a server has been
  // restarted or this worker has lost its lease.
  absl::StatusOr<StepResult> FinishStep() override;

  // With dynamic sharding, when work() has no work item: waits for one, or for the end of the job, and pulls
  // the current values. UNAVAILABLE, with what is missing, when the step's time limit is over.
  absl::Status AwaitWork() override;

  // Pulls the current values as float32, whatever the job's wire encoding is. They are of one version on all
  // servers, except in an asynchronous job whose optimizer takes no norms.
  absl::Status Pull() override;

  // --- For the chief, between steps ---

  // The learning rate of the next update, on ps/0.
  absl::StatusOr<float> LearningRate() override;
  // Sets the learning rate of all later updates. All servers begin to use it at the same version. In an
  // asynchronous job without norms (clipnorm, LAMB), each server instead begins when it receives the call.
  // INVALID_ARGUMENT if the job has a learning rate schedule.
  absl::Status SetLearningRate(float rate) override;
  // Ends the job for all workers. All servers make their last update at the same version. In an asynchronous
  // job without norms, each server instead ends when it receives the call. Afterwards finished() is true and
  // parameters() are the last values.
  absl::Status EndTraining() override;
  // Replaces the servers' values by `values`, parallel to parameters(), and pulls them. To be used while no
  // other worker trains.
  absl::Status Write(absl::Span<const float> values) override;

  // Marks a snapshot at the current point, to be read with ReadSnapshot(connection(), ...).
  absl::StatusOr<SnapshotMarker> PlaceSnapshotMarker();
  absl::StatusOr<TakenSnapshot> TakeSnapshot() override;
  // OK if another snapshot may succeed, for example because a server with the marked snapshot failed and its
  // backup has been promoted.
  absl::Status CheckSnapshotMayBeRetried(const absl::Status& failure) override;
  Connection& connection() { return *connection_; }

  // Makes all calls that wait, now and later, fail with `reason`. Any thread.
  void Interrupt(absl::Status reason) override ABSL_LOCKS_EXCLUDED(mutex_);

  // --- The end ---

  // Best effort: notifies the servers, within a few seconds.
  void Leave(v1::LeaveReason reason, const std::string& message) override;
  // For the chief: waits until all other workers have left or lost their lease.
  absl::Status WaitForOthers(Duration timeout) override;
  // For all workers but the chief, after Leave(). If the job may still be rolled back (Job.restorable), waits
  // for the end of training: see client::AwaitEnd(), with the step's time limit as `patience`.
  absl::Status AwaitEnd() override;
  // For the chief: notifies every server that training is over.
  absl::Status Finish() override;
  // The counters of ps/0.
  absl::StatusOr<v1::Counters> ServerCounters() override;
  // With dynamic sharding, at the end of the job: the missed and repeated examples, over all servers.
  absl::StatusOr<v1::DataPosition> UsedData() override;

 private:
  // Repeats `attempt` while it fails with UNAVAILABLE or DEADLINE_EXCEEDED, at most for the step's time
  // limit. ABORTED if a server has been restarted.
  absl::Status Persist(absl::FunctionRef<absl::Status()> attempt);
  // Connection::Describe(0); with backups, repeated until the step's time limit.
  absl::StatusOr<v1::ConnectResponse> DescribeLeader();
  // If an answer is lost, the repeated call draws a new incarnation. The first one is then never used.
  absl::Status JoinOnce();
  // Sends a numbered config change to every server that sequences.
  absl::Status ChangeConfig(const v1::ConfigChange& config_change);
  // Reads all values into incoming_ and swaps it in. UNAVAILABLE if a stream broke.
  absl::Status PullOnce(v1::Encoding encoding);
  // Pulls the values, encoded as they are in answers to pushes.
  absl::Status PullForStep();
  absl::StatusOr<StepResult> AwaitAnswers();
  // The reason of Interrupt(); OK: not called.
  absl::Status interruption() const ABSL_LOCKS_EXCLUDED(mutex_);
  // interruption(), or the failure that the heartbeats have found.
  absl::Status failure() const ABSL_LOCKS_EXCLUDED(mutex_);

  const std::unique_ptr<Connection> connection_;
  const std::vector<net::VariableInfo> variables_;
  const TrainingOptions options_;
  const int64_t size_;  // elements of all variables

  // Set by WaitReady() or Join(); constant until Reconnect().
  LearntJob job_;
  int64_t begun_generation_ = -1;  // the last generation that this chief began
  uint64_t incarnation_ = 0;
  int64_t clock_at_join_ = 0;
  int worker_;  // its number in the job

  // Used by the calling thread.
  AlignedBuffer parameters_, incoming_;
  std::vector<int64_t> versions_;  // [server]: the version of parameters_; equal in a synchronous job
  // [server] The edition of the values in parameters_ (ReadBegin.known_edition), if a pull brought them;
  // otherwise 0.
  std::vector<uint64_t> editions_;
  v1::Encoding editions_encoding_ = v1::ENCODING_FLOAT32;  // the encoding of the pull that brought them
  bool finished_ = false;
  v1::Work work_;
  int64_t position_ = 0;
  int64_t step_ = 0;
  bool push_ended_ = true;  // whether the push of step_ has ended
  int64_t reads_ = 0;
  int64_t config_changes_ = 0;

  mutable Mutex mutex_;
  absl::Status interruption_ ABSL_GUARDED_BY(mutex_);
  const v1::Process process_;  // this process, as described to the servers
  Heartbeats heartbeats_;
  StepPushes pushes_;
};

}  // namespace cairn::client
