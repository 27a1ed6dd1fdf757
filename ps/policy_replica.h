// The state of a policy as messages for the backup (replicate.proto).
#pragma once

#include "absl/status/statusor.h"
#include "cairn/v1/job.pb.h"
#include "cairn/v1/replicate.pb.h"
#include "ps/policy/policy.h"

namespace cairn::ps {

v1::ReplicatedPolicy ToProto(const PolicyState& state);
// Fails as CheckGradient() does if a staged gradient is invalid.
absl::StatusOr<PolicyState> FromProto(const v1::ReplicatedPolicy& proto);

// INVALID_ARGUMENT, naming the worker, work item or count, if the state is impossible for `job` with worker
// numbers below `most_workers`.
absl::Status CheckReplicated(const v1::ReplicatedPolicy& replicated, const v1::Job& job, int most_workers);

}  // namespace cairn::ps
