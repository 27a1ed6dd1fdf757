#include "common/net/server/port_wait.h"

#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "common/core/log.h"
#include "common/net/cluster/host_port.h"

namespace cairn::net {
namespace {

constexpr auto kLook = std::chrono::milliseconds(100);

// Whether another process has the port. False also if that cannot be determined.
bool IsTaken(const addrinfo& address, bool reuse_port) {
  const int fd = socket(address.ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return false;
  const absl::Cleanup close_it = [fd] { close(fd); };
  const int yes = 1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  if (reuse_port) setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &yes, sizeof yes);
  return bind(fd, address.ai_addr, address.ai_addrlen) != 0 && errno == EADDRINUSE;
}

}  // namespace

std::optional<ExitCode> AwaitPorts(absl::Span<const TaskPort> ports, SignalQueue& signals) {
  std::optional<int> signal;
  const auto pause = [&](std::chrono::milliseconds time) {
    signal = signals.WaitFor(time);
    return !signal.has_value();
  };
  for (const TaskPort& port : ports) {
    if (AwaitPort(port.address, port.reuse_port, kPortWait, pause)) continue;
    if (signal.has_value()) return ExitCodeOfSignal(*signal);
    LogError(port.flag, port.flag.empty() ? "" : ": ", "cannot listen on ", port.address,
             ": another process is using the port");
    return ExitCode::kRetryable;
  }
  return std::nullopt;
}

bool AwaitPort(const std::string& address, bool reuse_port, std::chrono::milliseconds limit,
               absl::FunctionRef<bool(std::chrono::milliseconds)> pause) {
  const auto parsed = HostPort::Parse(address);
  if (!parsed.ok()) return true;
  addrinfo hints{};
  hints.ai_flags = AI_NUMERICHOST | AI_PASSIVE;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(parsed->host.c_str(), absl::StrCat(parsed->port).c_str(), &hints, &found) != 0) return true;
  const absl::Cleanup free_found = [found] { freeaddrinfo(found); };
  const auto deadline = std::chrono::steady_clock::now() + limit;
  bool said = false;
  while (IsTaken(*found, reuse_port)) {
    if (std::chrono::steady_clock::now() >= deadline) return false;
    if (!said)
      LogWarning(address, " is in use; waiting up to ", limit.count() / 1000, " s for that process to end");
    said = true;
    if (!pause(kLook)) return false;
  }
  return true;
}

}  // namespace cairn::net
