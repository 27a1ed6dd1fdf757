// Waits for a TCP port that another process still uses, such as a predecessor that is about to end.
#pragma once

#include <chrono>
#include <string>

#include "absl/functional/function_ref.h"

namespace cairn::net {

// Blocks until a server could listen at `address` ("0.0.0.0:2222") or `limit` has passed; logs once that it
// waits. `pause` sleeps for the time it is given and returns false to give up. `reuse_port`: the server sets
// SO_REUSEPORT. Returns false if another process has the port all that time; true does not promise that
// listening will succeed.
bool AwaitPort(const std::string& address, bool reuse_port, std::chrono::milliseconds limit,
               absl::FunctionRef<bool(std::chrono::milliseconds)> pause);

}  // namespace cairn::net
