#include "common/net/server/flood_guard.h"

#include <linux/tcp.h>
#include <malloc.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <limits>
#include <optional>
#include <string>
#include <utility>

#include "common/core/log.h"
#include "common/memory/memory_size.h"

namespace cairn::net {
namespace {

constexpr auto kSeldom = std::chrono::milliseconds(100);
constexpr auto kOften = std::chrono::milliseconds(10);
// Fewer bytes are not a flood.
constexpr double kMinFloodPerSecond = 3 << 20;

int64_t OwnMemoryBytes() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    int64_t kib = 0;
    if (word == "RssAnon:" && status >> kib) return kib << 10;
    status.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
  }
  return 0;
}

// The identity of a socket; 0: no socket has this descriptor.
uint64_t CookieOf(int descriptor) {
  uint64_t cookie = 0;
  socklen_t size = sizeof cookie;
  return getsockopt(descriptor, SOL_SOCKET, SO_COOKIE, &cookie, &size) == 0 ? cookie : 0;
}

}  // namespace

void FloodGuard::Add(int connection) {
  if (bound_ == 0) return;
  connections_.push_back({.descriptor = connection, .cookie = CookieOf(connection)});
  if (connections_.size() > forget_above_) ForgetClosed();
}

void FloodGuard::ForgetClosed() {
  std::erase_if(connections_, [](const Connection& one) { return CookieOf(one.descriptor) != one.cookie; });
  forget_above_ = 2 * connections_.size() + 64;
}

FloodGuard::Most FloodGuard::CountReceived() {
  Most most;
  for (Connection& connection : connections_) {
    tcp_info info{};
    socklen_t size = sizeof info;
    if (getsockopt(connection.descriptor, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) continue;
    const uint64_t before = std::exchange(connection.received, info.tcpi_bytes_received);
    if (connection.received - before > most.bytes) most = {&connection, connection.received - before};
  }
  return most;
}

std::chrono::milliseconds FloodGuard::Look() {
  const int64_t memory = bound_ == 0 ? 0 : OwnMemoryBytes();
  if (memory <= bound_ / 2) {
    counted_.reset();
    return kSeldom;
  }
  ForgetClosed();
  const auto now = std::chrono::steady_clock::now();
  const std::optional<std::chrono::steady_clock::time_point> before = std::exchange(counted_, now);
  const Most most = CountReceived();
  if (memory <= bound_ || !before.has_value()) return kOften;
  malloc_trim(0);  // returns memory that is already free
  if (OwnMemoryBytes() <= bound_) return kOften;
  const double seconds = std::chrono::duration<double>(now - *before).count();
  if (most.connection == nullptr || static_cast<double>(most.bytes) < kMinFloodPerSecond * seconds ||
      CookieOf(most.connection->descriptor) != most.connection->cookie) {
    return kSeldom;
  }
  shutdown(most.connection->descriptor, SHUT_RDWR);
  LogWarning("this process uses more than ", InGiB(static_cast<double>(bound_)),
             " of memory: closed the connection that received the most, ", most.bytes, " bytes in ",
             std::chrono::duration_cast<std::chrono::milliseconds>(now - *before).count(), " ms");
  counted_.reset();  // gRPC needs time to free the memory
  return kSeldom;
}

}  // namespace cairn::net
