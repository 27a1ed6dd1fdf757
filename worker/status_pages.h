// What --metrics_port of a worker shows: /metrics, /statusz and /healthz, of its meters and nothing else.
#pragma once

#include <string>

#include "cairn/v1/job.pb.h"
#include "common/net/http_server.h"
#include "worker/meters.h"

namespace cairn::worker {

// What does not change: who this is, and in which job.
struct WorkerIdentity {
  std::string task;     // "worker/1"
  std::string address;  // in the cluster
  v1::Job job;          // but for the run_id
  std::string model;
  int64_t parameters = 0;
};

// Any thread.
net::HttpReply PageOf(const WorkerIdentity& identity, const WorkerMeters& meters, const std::string& path);

}  // namespace cairn::worker
