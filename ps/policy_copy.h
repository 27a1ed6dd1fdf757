// All that a policy knows, as messages for the copy on another server (replicate.proto).
#pragma once

#include "absl/status/statusor.h"
#include "cairn/v1/job.pb.h"
#include "cairn/v1/replicate.pb.h"
#include "ps/policy/policy.h"

namespace cairn::ps {

v1::CopiedPolicy ToProto(const PolicyState& state);
// Fails as CheckGradient() of what is staged.
absl::StatusOr<PolicyState> FromProto(const v1::CopiedPolicy& proto);

// INVALID_ARGUMENT naming what a job of so many workers cannot have come to: a worker, a ticket, a count.
absl::Status CheckCopied(const v1::CopiedPolicy& copied, const v1::Job& job, int most_workers);

}  // namespace cairn::ps
