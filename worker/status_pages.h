// The pages of a worker's --metrics_port: /metrics, /statusz and /healthz. They depend only on the worker's
// metrics.
#pragma once

#include <string>

#include "cairn/v1/job.pb.h"
#include "common/net/http_server.h"
#include "worker/metrics.h"

namespace cairn::worker {

// The constant properties of a worker.
struct WorkerIdentity {
  std::string task;     // "worker/1"
  std::string address;  // the worker's address in the cluster
  v1::Job job;          // without the run_id
  std::string model;
  int64_t parameters = 0;
};

// The reply to a request for `path`. Any thread.
net::HttpReply PageOf(const WorkerIdentity& identity, const WorkerMetrics& metrics, const std::string& path);

}  // namespace cairn::worker
