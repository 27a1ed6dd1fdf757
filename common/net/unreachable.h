// Why a server was not reached, in the words of a person: refused, no answer, wrong name, and what TLS had
// against it, told apart.
#pragma once

#include <string>

#include "absl/status/status.h"

namespace cairn::net {

// Of a call's UNAVAILABLE or DEADLINE_EXCEEDED: "connection refused". `before`: the reason of the last try,
// empty when there was none; it stands when this try told nothing new.
std::string WhyUnreachable(const absl::Status& status, const std::string& before = "");

}  // namespace cairn::net
