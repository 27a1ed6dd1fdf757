// Waits for a TCP port that another process has, as a predecessor that is about to end.
#pragma once

#include <chrono>
#include <string>

#include "absl/functional/function_ref.h"

namespace cairn::net {

// Until a server could listen at `address` ("0.0.0.0:2222"), or `limit` has passed; says once that it waits.
// `pause` waits for so long and returns false to give up. `reuse_port`: the server sets SO_REUSEPORT. Whether
// the port is free then, the caller finds out by listening.
void AwaitPort(const std::string& address, bool reuse_port, std::chrono::milliseconds limit,
               absl::FunctionRef<bool(std::chrono::milliseconds)> pause);

}  // namespace cairn::net
