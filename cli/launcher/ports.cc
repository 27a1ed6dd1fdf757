#include "cli/launcher/ports.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

namespace cairn::cli {

absl::StatusOr<ReservedPort> ReservedPort::Reserve() {
  const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (socket < 0) return absl::ErrnoToStatus(errno, "cannot create a socket");
  ReservedPort reserved(socket, 0);
  const int one = 1;
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  if (setsockopt(socket, SOL_SOCKET, SO_REUSEPORT, &one, sizeof one) != 0 ||
      bind(socket, reinterpret_cast<const sockaddr*>(&address), size) != 0 ||
      getsockname(socket, reinterpret_cast<sockaddr*>(&address), &size) != 0) {
    return absl::ErrnoToStatus(errno, "cannot reserve a port of 127.0.0.1");
  }
  reserved.port_ = ntohs(address.sin_port);
  return reserved;
}

ReservedPort::~ReservedPort() {
  if (socket_ >= 0) close(socket_);
}

ReservedPort::ReservedPort(ReservedPort&& other) noexcept
    : socket_(std::exchange(other.socket_, -1)), port_(other.port_) {}

ReservedPort& ReservedPort::operator=(ReservedPort&& other) noexcept {
  std::swap(socket_, other.socket_);
  std::swap(port_, other.port_);
  return *this;
}

}  // namespace cairn::cli
