// Where a task takes streams that are not gRPC's: a Unix socket for tasks of its host, a TCP port for others.
#pragma once

#include <chrono>
#include <optional>
#include <utility>

#include "common/core/file_descriptor.h"
#include "common/net/direct/address.h"
#include "common/net/direct/socket.h"
#include "common/net/direct/tcp_socket.h"

namespace cairn::net {

class DirectListeners {
 public:
  struct Connection {
    FileDescriptor socket;
    bool local = false;  // of this host, by the Unix socket
  };

  DirectListeners() = default;  // none
  DirectListeners(LocalListener local, TcpListener tcp) : local_(std::move(local)), tcp_(std::move(tcp)) {}

  bool any() const { return local_.socket.valid() || tcp_.socket.valid(); }
  DirectAddress address() const { return {.local_socket = local_.name, .port = tcp_.port}; }
  // The next connection: waits for one at most `limit`, which passes too where there is no descriptor for it.
  std::optional<Connection> Accept(std::chrono::milliseconds limit);
  // Who connects from now on, or waits to be accepted, is refused at once.
  void Close();

 private:
  LocalListener local_;
  TcpListener tcp_;
};

}  // namespace cairn::net
