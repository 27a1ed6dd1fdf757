// Queries the servers of a job for its current step. Blocks; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/core/clock.h"
#include "common/net/security/access.h"

namespace cairn::cli {

// The highest version among the `servers` ("host:port") that answer. `timeout` bounds all queries together.
// Nullopt if no server answers.
std::optional<int64_t> RequestStep(const std::vector<std::string>& servers, const net::Access& access,
                                   Duration timeout);

}  // namespace cairn::cli
