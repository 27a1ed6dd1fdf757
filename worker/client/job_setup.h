// What happens before training: the chief declares the job and writes the first values, everybody learns it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "cairn/v1/job.pb.h"
#include "common/net/placement.h"
#include "worker/client/connection.h"

namespace cairn::client {

// The job as a task understands it from its own flags and model file.
struct IntendedJob {
  const std::string& task;  // "worker/0"
  const v1::Job& job;
  const std::vector<net::VariableInfo>& variables;
};

// The job as the servers have it.
struct LearntJob {
  v1::Job job;
  net::Layout layout;
  std::vector<uint64_t> layout_ids;  // [server]
};

// The chief's: see TrainingClient::Initialise(). `initial` [sum of the variables].
absl::Status InitialiseServers(Connection& connection, const IntendedJob& intended, int64_t split_bytes,
                               absl::Span<const float> initial);

// Waits until all servers have variables, within the connection's limit. FAILED_PRECONDITION naming what
// differs when their job is not the intended one.
absl::StatusOr<LearntJob> AwaitJob(Connection& connection, const IntendedJob& intended);

}  // namespace cairn::client
