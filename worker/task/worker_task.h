// One task of cairn-worker: a worker of the job, which may be the chief; a stage worker of a model that is
// divided over workers; or the evaluator.
//
//   Validate ─► Load ─► Build ─► Connect ─► Assemble ─► Train     a worker
//           └─► Serve                                             a stage worker
//   Evaluate                                                      the evaluator
//
// Created and run once by cairn-worker's main thread, after logging has started. Each phase sets the members
// that the later phases use. A failure is reported here, so main() only exits.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "cairn/v1/job.pb.h"
#include "client/training/training_client.h"
#include "common/core/clock.h"
#include "common/core/status.h"
#include "common/monitor/http_server.h"
#include "common/net/cluster/cluster_spec.h"
#include "common/net/security/access.h"
#include "common/net/server/port_wait.h"
#include "common/system/fault_points.h"
#include "common/system/signals.h"
#include "common/trace/trace_session.h"
#include "data/sampler.h"
#include "worker/embedding/table_replica.h"
#include "worker/embedding/table_states.h"
#include "worker/embedding/trained_tables.h"
#include "worker/inputs/inputs.h"
#include "worker/options/options.h"
#include "worker/peer/peer_listener.h"
#include "worker/placement/compute.h"
#include "worker/placement/model_partition.h"
#include "worker/report/metrics.h"
#include "worker/report/progress.h"
#include "worker/split/stage_leader.h"
#include "worker/task/all_reduce_task.h"
#include "worker/task/split_worker.h"
#include "worker/task/stop_on_signal.h"
#include "worker/tensorboard/tensorboard_writer.h"
#include "worker/training/callbacks.h"
#include "worker/training/snapshots.h"
#include "worker/training/trainer.h"
#include "worker/training/training_hooks.h"

namespace cairn::worker {

inline constexpr char kProgram[] = "cairn-worker";

// The number of threads that compute on this worker's CPU devices, unless --deterministic fixes it.
int CoresOf(const TrainOptions& options, const net::ResolvedCluster& cluster);

class WorkerTask {
 public:
  // Everything here must outlive the task.
  struct Args {
    const TrainOptions& options;
    const net::ResolvedCluster& cluster;
    const net::Access& access;
    const ListenFlags& listen;
    const monitor::MetricsFlags& pages;  // --metrics_port
    const TraceFlags& traced;
    SignalQueue& signals;
    FaultPoints& faults;
  };
  explicit WorkerTask(const Args& args)
      : args_(args),
        options_(args.options),
        cluster_(args.cluster),
        chief_(args.cluster.self == args.cluster.spec.chief()) {}

  // Runs the task to its end. Returns the exit code, after printing or logging the reason for a failure.
  ExitCode Run();

 private:
  // --- The phases of a worker ---
  // The model file and this worker's part of the model. Every failure is a usage error.
  absl::Status Validate();
  // Data, job and callbacks. Every failure is a usage error, except RESOURCE_EXHAUSTED.
  absl::Status Load();
  // Devices, snapshots, pages and, without servers, the ring. INVALID_ARGUMENT is a usage error, and so it is
  // from Assemble().
  absl::Status Build();
  // Reaches the workers of this worker's group, and the servers.
  absl::Status Connect();
  // The trainer with its hooks, and what the chief shows and records.
  absl::Status Assemble();
  std::optional<client::TrainingLoop::Chief> ChiefParts();
  ExitCode Train();

  // --- The other tasks ---
  // A stage worker computes for the stage leader of its group. It needs neither data nor servers.
  ExitCode Serve();
  // The evaluator needs neither servers nor workers.
  ExitCode Evaluate();

  bool is_stage_worker() const { return assignment_.has_value() && assignment_->task > 0; }
  // The ports that this task will listen on.
  std::vector<net::TaskPort> Ports() const;
  // Whether layers normalize by the batches of all workers, and there are others.
  bool synchronizes_batches() const;
  // The parts of Build() and Assemble().
  absl::Status MakeDevices(const nn::Model& model, const nn::Objective& objective);
  absl::Status MakeStageLeader();
  absl::Status MakeSnapshots();
  absl::Status StartRing();
  // On the chief: the progress display and TensorBoard.
  void OpenDisplays();
  void LogDevices() const;
  void LogJob() const;
  // Passes the states of the job's embedding tables as they are now. Waits for a snapshot in progress.
  absl::Status StreamStates(client::TableSink& sink);
  // Passes their rows, for the chief's exports.
  absl::Status StreamTables(RowSink& sink);
  TableRows Tables() {
    return {.plan = *inputs_->tables, .stream = [this](RowSink& sink) { return StreamTables(sink); }};
  }
  // Keeps them in memory, to be restored.
  absl::StatusOr<client::TableOpener> TakeTables();
  client::Exchange exchange() { return ring_ != nullptr ? ring_->exchange() : servers_->exchange(); }
  // The replica that the trainer computes with.
  nn::Replica& replica() { return table_replica_.has_value() ? *table_replica_ : *compute_.replica; }
  TraceRecorder* trace() { return trace_->recorder(); }
  SplitArgs SplitArgsFor(const nn::Model& model, const nn::Objective& objective);
  // Logs the error of the running task, if any, and returns its exit code, which is the signal's after a
  // signal.
  ExitCode Report(const absl::Status& status) const;

  const Args args_;
  const TrainOptions& options_;
  const net::ResolvedCluster& cluster_;
  const bool chief_;

  // In the order in which they are created. Set by Validate():
  std::optional<nn::Model> described_;
  std::optional<Assignment> assignment_;  // nullopt: the model is not divided
  // By Load():
  std::optional<Inputs> inputs_;
  v1::Job job_;
  int worker_ = 0;  // index among the job's workers
  data::SamplerOptions sampler_;
  std::optional<Callbacks> callbacks_;  // on the chief
  // By Build():
  const SteadyClock clock_;
  std::optional<TraceSession> trace_;
  std::optional<StopOnSignal> stop_;
  StepBatchSync batch_sync_;  // outlives the replica
  Compute compute_;
  split::StageLeader* leader_ = nullptr;  // compute_.replica if the model is divided
  std::optional<WorkerMetrics> metrics_;
  std::unique_ptr<monitor::HttpServer> pages_;  // null without --metrics_port
  std::unique_ptr<AllReduceTask> ring_;         // null with servers
  // By Connect():
  std::unique_ptr<client::TrainingClient> servers_;  // null with --mode allreduce
  // On the chief: made by Build(), destroyed before the exchange, whose connection it uses.
  std::unique_ptr<Snapshots> snapshots_;
  // By Assemble():
  std::optional<TableReplica> table_replica_;     // with --embedding_tables
  std::optional<Progress> progress_;              // on the chief
  std::optional<TensorBoardWriter> tensorboard_;  // on the chief, with --train_dir
  std::optional<Trainer> trainer_;
  std::unique_ptr<TrainingHooks> hooks_;  // Chief or NonChief
};

}  // namespace cairn::worker
