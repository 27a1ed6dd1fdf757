// What requests declare: the slices of a job, variables that are added to those there are, gradients, and
// what the chief changes on the way.
#pragma once

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "cairn/v1/parameter_server.pb.h"
#include "common/net/placement.h"
#include "ps/active_job.h"

namespace cairn::ps {

// With their offsets, one slice after another. INVALID_ARGUMENT naming the variable that is declared twice or
// makes no sense.
absl::StatusOr<std::vector<net::Slice>> ReadSlices(const v1::CreateRequest& request);

// A job in MODE_VARIABLES that holds what `job` holds and, behind it, `added` with the request's values.
// ALREADY_EXISTS names a variable that is there; INVALID_ARGUMENT where the values do not fit,
// RESOURCE_EXHAUSTED where the memory does not.
absl::StatusOr<std::shared_ptr<ActiveJob>> WithVariables(ActiveJob& job, const v1::CreateRequest& request,
                                                         std::vector<net::Slice> added, uint64_t layout);

// INVALID_ARGUMENT, quoting it, for a gradient that nobody can have computed: of a negative worker or
// version, of no incarnation or step, of more examples than the weighted mean can take.
absl::Status CheckGradient(const Gradient& gradient);

// INVALID_ARGUMENT for a learning rate that is none, or where a schedule gives it.
absl::Status CheckAmendment(const v1::Amendment& amendment, const v1::OptimizerConfig& optimizer);
Amendment AmendmentOf(const v1::Amendment& proto);

}  // namespace cairn::ps
