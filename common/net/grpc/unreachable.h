// Explains why a server was not reached: refused, no answer, wrong name, or a TLS error.
#pragma once

#include <string>

#include "absl/status/status.h"

namespace cairn::net {

// The reason for a call's UNAVAILABLE or DEADLINE_EXCEEDED: "connection refused". `before`: the reason of the
// previous attempt, empty if there was none; it is returned if this attempt reveals nothing new.
std::string WhyUnreachable(const absl::Status& status, const std::string& before = "");

}  // namespace cairn::net
