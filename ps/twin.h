// Whether another process is this server: one that was started elsewhere with the same task index would wait
// for clients that all go to the first one.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "common/net/grpc_util.h"

namespace cairn::ps {

struct TwinQuestion {
  std::string task;           // "ps/0"
  std::string address;        // of the task, as the cluster has it
  uint64_t cluster_hash = 0;  // net::ClusterSpec::Hash()
  uint64_t incarnation = 0;   // of this process
};

// Asks who serves at the task's address, for at most 2 s. FAILED_PRECONDITION naming the address where
// another process of the same task and cluster answers; OK where this one does, or nobody.
absl::Status CheckNoTwin(const TwinQuestion& question, const net::Credentials& credentials);

}  // namespace cairn::ps
