// Waits for a TCP port that another process still uses, such as a predecessor that is about to end.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/types/span.h"
#include "common/core/signals.h"
#include "common/core/status.h"

namespace cairn::net {

// How long a predecessor may take to end.
inline constexpr auto kPortWait = std::chrono::seconds(10);

// A port that a task is to listen on.
struct TaskPort {
  std::string address;  // "0.0.0.0:2222"
  bool reuse_port = false;
  std::string flag{};  // for messages: "--metrics_port"; empty: the task's own port
};

// As AwaitPort() for each of `ports`, up to kPortWait each. Returns the code with which the task ends instead
// of starting: kRetryable, with an error in the log, if another process has a port all that time; a signal's
// own code. Empty: the ports are free.
std::optional<ExitCode> AwaitPorts(absl::Span<const TaskPort> ports, SignalQueue& signals);

// Blocks until a server could listen at `address` ("0.0.0.0:2222") or `limit` has passed; logs once that it
// waits. `pause` sleeps for the time it is given and returns false to give up. `reuse_port`: the server sets
// SO_REUSEPORT. Returns false if another process has the port all that time; true does not promise that
// listening will succeed.
bool AwaitPort(const std::string& address, bool reuse_port, std::chrono::milliseconds limit,
               absl::FunctionRef<bool(std::chrono::milliseconds)> pause);

}  // namespace cairn::net
