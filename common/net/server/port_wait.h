// Waits for a TCP port that another process still uses, such as a predecessor that is about to end.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/types/span.h"
#include "common/core/status.h"
#include "common/system/signals.h"

namespace cairn::net {

// How long a predecessor may take to end.
inline constexpr auto kPortWait = std::chrono::seconds(10);

// A port that a task is to listen on.
struct TaskPort {
  std::string address;  // "0.0.0.0:2222"
  bool reuse_port = false;
  std::string flag{};  // for messages: "--metrics_port"; empty: the task's own port
};

// Calls AwaitPort() for each of `ports`, with a limit of kPortWait each. Returns nullopt if the ports are
// free, otherwise the exit code of the task: kRetryable, with an error in the log, if another process still
// has a port after that time, or the signal's exit code if a signal arrives.
std::optional<ExitCode> AwaitPorts(absl::Span<const TaskPort> ports, SignalQueue& signals);

// Blocks until a server could listen at `address` ("0.0.0.0:2222") or `limit` has passed; logs once that it
// is waiting. `pause` sleeps for the time it is given and returns false to give up. `reuse_port`: the server
// sets SO_REUSEPORT. Returns false if another process still has the port at the end; true does not promise
// that listening will succeed.
bool AwaitPort(const std::string& address, bool reuse_port, std::chrono::milliseconds limit,
               absl::FunctionRef<bool(std::chrono::milliseconds)> pause);

}  // namespace cairn::net
