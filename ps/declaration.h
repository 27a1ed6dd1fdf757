// What a Create request declares: the slices of a job, and variables that are added to those there are.
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
// ALREADY_EXISTS names a variable that is there; INVALID_ARGUMENT where the values do not fit.
absl::StatusOr<std::shared_ptr<ActiveJob>> WithVariables(ActiveJob& job, const v1::CreateRequest& request,
                                                         std::vector<net::Slice> added, uint64_t layout,
                                                         int server);

}  // namespace cairn::ps
