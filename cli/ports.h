// Free TCP ports of this machine that stay free until their tasks listen on them.
#pragma once

#include "absl/status/statusor.h"

namespace cairn::cli {

// A port of 127.0.0.1 that belongs to us. The socket behind it is bound with SO_REUSEPORT and never listens,
// so a child that sets SO_REUSEPORT too (`cairn-ps --reuse_port`) can listen on the port, and nobody else is
// given it between our choice and the child's start. Hold it for as long as the child lives. Move-only.
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
