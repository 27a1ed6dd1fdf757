// The pages of a worker's --metrics_port: /metrics, /statusz and /healthz. They depend only on the worker's
// metrics.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "cairn/v1/job.pb.h"
#include "common/monitor/http_server.h"
#include "worker/report/metrics.h"

namespace cairn::worker {

// The constant properties of a worker.
struct WorkerIdentity {
  std::string task;     // "worker/1"
  std::string address;  // the worker's address in the cluster
  v1::Job job;          // without the run_id
  std::string model;
  int64_t parameters = 0;
};

// Starts the server of --metrics_port; null without the flag. `metrics` must outlive the server.
// INVALID_ARGUMENT as for monitor::HttpServer::Start().
absl::StatusOr<std::unique_ptr<monitor::HttpServer>> ServePages(const monitor::MetricsFlags& flags,
                                                                WorkerIdentity identity,
                                                                const WorkerMetrics& metrics);

// The reply to a request for `path`. Any thread.
monitor::HttpReply PageOf(const WorkerIdentity& identity, const WorkerMetrics& metrics,
                          const std::string& path);

}  // namespace cairn::worker
