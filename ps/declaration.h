// Reads what requests declare: the slices of a job, variables added to existing ones, gradients, and config
// changes by the chief.
#pragma once

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "cairn/v1/parameter_server.pb.h"
#include "common/net/placement.h"
#include "ps/active_job.h"

namespace cairn::ps {

// The slices with their offsets, one after another. INVALID_ARGUMENT, naming the variable, for one that is
// declared twice or is invalid.
absl::StatusOr<std::vector<net::Slice>> ReadSlices(const v1::CreateRequest& request);

// A job in MODE_VARIABLES with the contents of `job`, followed by `added` with the request's values.
// ALREADY_EXISTS, naming the variable, if it exists; INVALID_ARGUMENT if the values do not fit;
// RESOURCE_EXHAUSTED if the memory does not suffice.
absl::StatusOr<std::shared_ptr<ActiveJob>> WithVariables(ActiveJob& job, const v1::CreateRequest& request,
                                                         std::vector<net::Slice> added, uint64_t layout);

// INVALID_ARGUMENT, quoting the gradient, if no worker can have computed it: a negative worker or version, no
// incarnation or step, or more examples than the weighted mean supports.
absl::Status CheckGradient(const Gradient& gradient);

// INVALID_ARGUMENT for an invalid learning rate, or for any learning rate if the job has a schedule.
absl::Status CheckConfigChange(const v1::ConfigChange& config_change, const v1::OptimizerConfig& optimizer);
ConfigChange ConfigChangeOf(const v1::ConfigChange& proto);

}  // namespace cairn::ps
