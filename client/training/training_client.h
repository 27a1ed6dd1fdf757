// A worker's side of training with parameter servers: its membership, and the owner of the other sides of the
// exchange.
//
//   TrainingClient ──► JoinedJob      the job, this worker's incarnation and lease
//        │  └────────► ServerSteps    values and steps ──► ServerValues, StepPushes
//        └───────────► ServerControl  the chief's calls
//
// All calls come from one thread, except Interrupt() and Step::Announce() (any thread). Every call that waits
// has a time limit.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "cairn/v1/job.pb.h"
#include "client/gradients/wire_metrics.h"
#include "client/job_setup.h"
#include "client/rows/row_tables.h"
#include "client/training/exchange.h"
#include "client/training/joined_job.h"
#include "client/training/server_control.h"
#include "client/training/server_steps.h"
#include "client/transport/connection.h"
#include "common/core/clock.h"
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
  // Which server stores which rows of a table of the job. Null: no rows are exchanged.
  MakePartitioner make_partitioner{};
};

class TrainingClient final : public Membership {
 public:
  // `variables`: the model's, with gapless offsets in a flat buffer.
  TrainingClient(std::unique_ptr<Connection> connection, std::vector<net::VariableInfo> variables,
                 const TrainingOptions& options);
  // Without Leave(), a lease remains until it expires. Nothing else is left behind.
  ~TrainingClient() override;

  ServerSteps& steps() { return steps_; }
  ServerControl& control() { return control_; }
  Exchange exchange() { return {.membership = *this, .steps = steps_, .control = control_, .rows = rows()}; }
  // Null without TrainingOptions::make_partitioner.
  RowExchange* rows() { return exchanges_rows_ ? &steps_ : nullptr; }
  Connection& connection() { return *connection_; }
  int worker() const { return job_.worker(); }  // its number in the job

  // For the chief: creates the variables on the servers, unless they are ready. If some servers have lost
  // their variables, or if all servers have lost them since this client was last a member, all servers are
  // rolled back together to the state that `source` finds. FAILED_PRECONDITION if they train a job other than
  // `job` (settings that may change during training are not compared). Errors of `source`.
  absl::Status Initialise(const v1::Job& job, StateSource& source) override;
  // For every worker: waits until all servers have variables, then checks that their job is `job` and that
  // they store `variables`.
  absl::Status WaitReady(const v1::Job& job) override;
  // Becomes a member, starts heartbeats and pulls the values.
  absl::Status Join() override;
  StartingPoint start() const override { return start_; }
  // After a step or another call failed with ABORTED: gives up the membership and connects to all servers
  // again, including restarted ones. Initialise() and WaitReady() follow. Fails after Interrupt(), and if the
  // servers cannot be reached within their time limit.
  absl::Status Reconnect() override;
  // True for ABORTED if the chief takes snapshots, this worker has not joined yet, or all servers still have
  // their variables.
  bool CanReconnectAfter(const absl::Status& failure) const override;
  void Interrupt(absl::Status reason) override { job_.Interrupt(std::move(reason)); }
  // Notifies the servers, within a few seconds.
  void Leave(v1::LeaveReason reason, const std::string& message) override {
    job_.Leave(reason, message);
    steps_.Drop();  // the caller may free the gradients of a step that it has not finished
  }
  // If the job may still be rolled back (Job.restorable), waits for the end of training: see
  // client::AwaitEnd(); a version may stay unchanged for the step's time limit.
  absl::Status AwaitEnd() override;

 private:
  const std::unique_ptr<Connection> connection_;
  const std::vector<net::VariableInfo> variables_;
  const int64_t split_bytes_;
  const bool exchanges_rows_;
  int64_t begun_generation_ = -1;  // the last generation that this chief began
  StartingPoint start_;
  JoinedJob job_;
  ServerSteps steps_;
  ServerControl control_;
};

}  // namespace cairn::client
