// Reserves free TCP ports of this machine until tasks listen on them.
#pragma once

#include "absl/status/statusor.h"

namespace cairn::cli {

// A reserved port of 127.0.0.1. Its socket is bound with SO_REUSEPORT and never listens: a child that sets
// SO_REUSEPORT too (`cairn-ps --reuse_port`) can listen on the port, and the kernel assigns it to no other
// process before the child starts. Must outlive the child. Move-only.
class ReservedPort {
 public:
  static absl::StatusOr<ReservedPort> Reserve();
  ~ReservedPort();
  ReservedPort(ReservedPort&& other) noexcept;
  ReservedPort& operator=(ReservedPort&& other) noexcept;

  int port() const { return port_; }

 private:
  ReservedPort(int socket, int port) : socket_(socket), port_(port) {}
  int socket_;
  int port_;
};

}  // namespace cairn::cli
