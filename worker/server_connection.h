// Connects a worker to the parameter servers of its job.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "cairn/v1/job.pb.h"
#include "common/core/trace.h"
#include "common/net/access.h"
#include "common/net/cluster_spec.h"
#include "worker/client/training_client.h"
#include "worker/metrics.h"
#include "worker/nn/model.h"
#include "worker/options.h"
#include "worker/stop_on_signal.h"

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
