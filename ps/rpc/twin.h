// Detects another process that serves as this task. A second server started on another machine with the same
// task index would wait in vain, because all clients connect to the first one.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "common/net/grpc/grpc_util.h"

namespace cairn::ps {

struct TwinQuestion {
  std::string task;           // "ps/0"
  std::string address;        // the task's address in the cluster's configuration
  uint64_t cluster_hash = 0;  // net::ClusterSpec::Hash()
  uint64_t incarnation = 0;   // this process' incarnation
};

// Queries the server at the task's address; blocks for at most 2 s. FAILED_PRECONDITION naming the address if
// another process of the same task and cluster answers; OK if this process answers, or none does.
absl::Status CheckNoTwin(const TwinQuestion& question, const net::Credentials& credentials);

}  // namespace cairn::ps
