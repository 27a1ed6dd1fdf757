// Reads the declarations in requests: the slices of a job, and variables added to existing ones.
#pragma once

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "cairn/v1/parameter_server.pb.h"
#include "common/net/cluster/placement.h"
#include "ps/job/active_job.h"

namespace cairn::ps {

// Returns the declared slices, with the offsets at which they lie one after another. INVALID_ARGUMENT,
// naming the variable, if it is invalid or declared twice.
absl::StatusOr<std::vector<net::Slice>> ReadSlices(
    const google::protobuf::RepeatedPtrField<v1::VariableSlice>& declared);

// Makes a job in MODE_VARIABLES that has the variables of `job` and, after them, the slices `added`.
// `request` contains the values of `added`. ALREADY_EXISTS: a variable of that name exists; the error names
// it. INVALID_ARGUMENT: the values do not fit the slices. RESOURCE_EXHAUSTED: the job would exceed the memory
// limit.
absl::StatusOr<std::shared_ptr<ActiveJob>> WithVariables(ActiveJob& job, const v1::CreateRequest& request,
                                                         std::vector<net::Slice> added, uint64_t layout);

}  // namespace cairn::ps
