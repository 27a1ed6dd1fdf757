// How far a job is, asked of its servers. Blocks; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/core/clock.h"
#include "common/net/access.h"

namespace cairn::cli {

// The highest version among those `servers` ("host:port") that answer within `timeout`, in all; nothing when
// none does.
std::optional<int64_t> AskStep(const std::vector<std::string>& servers, const net::Access& access,
                               Duration timeout);

}  // namespace cairn::cli
