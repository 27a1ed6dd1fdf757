// Connects a worker to the parameter servers of its job.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "cairn/v1/job.pb.h"
#include "client/training/training_client.h"
#include "common/net/cluster/cluster_spec.h"
#include "common/net/security/access.h"
#include "common/trace/trace.h"
#include "nn/model.h"
#include "worker/options/options.h"
#include "worker/report/metrics.h"
#include "worker/task/stop_on_signal.h"

namespace cairn::worker {

// Everything here must outlive the connection.
struct ServerConnectionArgs {
  const TrainOptions& options;
  const nn::Model& model;
  const v1::Job& job;
  const net::ResolvedCluster& cluster;
  const net::Access& access;
  int worker;  // index among the job's workers
  const StopOnSignal& stop;
  WorkerMetrics& metrics;  // reported with every heartbeat
  TraceRecorder* trace;    // may be null
};

// Waits until every server of the job is reached, at most --connect_timeout. Errors are those of
// client::Connection::Open().
absl::StatusOr<std::unique_ptr<client::TrainingClient>> ConnectToServers(const ServerConnectionArgs& args);

}  // namespace cairn::worker
