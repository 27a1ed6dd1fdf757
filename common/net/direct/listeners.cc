#include "common/net/direct/listeners.h"

#include <poll.h>

#include <thread>

namespace cairn::net {

std::optional<DirectListeners::Connection> DirectListeners::Accept(std::chrono::milliseconds limit) {
  pollfd ready[2] = {{.fd = local_.socket.get(), .events = POLLIN, .revents = 0},
                     {.fd = tcp_.socket.get(), .events = POLLIN, .revents = 0}};  // poll() passes over -1
  if (poll(ready, 2, static_cast<int>(limit.count())) <= 0) return std::nullopt;
  Connection connection = {.socket = ready[0].revents != 0 ? AcceptLocally(local_.socket) : FileDescriptor(),
                           .local = true};
  if (!connection.socket.valid() && ready[1].revents != 0) {
    connection = {.socket = AcceptByTcp(tcp_.socket), .local = false};
  }
  if (connection.socket.valid()) return connection;
  std::this_thread::sleep_for(limit);  // others will be given back
  return std::nullopt;
}

void DirectListeners::Close() {
  local_.socket.Reset();
  tcp_.socket.Reset();
}

}  // namespace cairn::net
