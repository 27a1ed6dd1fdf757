// The structs of include/cairn from and to those of the rest of Cairn.
//
// Pure functions; any thread.
#pragma once

#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cairn/job.h"
#include "cairn/session.h"
#include "cairn/status.h"
#include "cairn/v1/job.pb.h"
#include "common/net/cluster/placement.h"

namespace cairn::api {

Status FromAbsl(const absl::Status& status);
absl::Status ToAbsl(const Status& status);

// The variables with their offsets in the array of all values. INVALID_ARGUMENT naming the variable for an
// empty or repeated name, a negative dimension or a momentum outside [0, 1].
absl::StatusOr<std::vector<net::VariableInfo>> VariablesOf(const Job& job);

// The names and shapes of the variables as JSON: what a job's programs and its checkpoints must agree on.
std::string DescribeModel(const Job& job);
// The SHA-256 of that, in hex.
std::string ModelHash(const Job& job);

v1::OptimizerConfig ToProto(const Optimizer& optimizer);

// The job as worker `options.worker` expects it on the servers, without its run_id. INVALID_ARGUMENT naming
// the field.
absl::StatusOr<v1::Job> ToProto(const Job& job, const SessionOptions& options);

}  // namespace cairn::api
