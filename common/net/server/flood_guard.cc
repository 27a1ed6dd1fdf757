#include "common/net/server/flood_guard.h"

#include <linux/tcp.h>
#include <malloc.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <limits>
#include <string>
#include <thread>
#include <utility>

#include "common/core/log.h"
#include "common/memory/memory_size.h"

namespace cairn::net {
namespace {

// The interval over which the bytes received on each connection are counted.
constexpr auto kMeasured = std::chrono::milliseconds(20);
// Fewer bytes in that interval are not a flood.
constexpr uint64_t kMinFlood = 64 << 10;

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

uint64_t FloodGuard::NewlyReceived(Connection& connection) {
  tcp_info info{};
  socklen_t size = sizeof info;
  if (getsockopt(connection.descriptor, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return 0;
  const uint64_t before = std::exchange(connection.received, info.tcpi_bytes_received);
  return connection.received - before;
}

void FloodGuard::Look() {
  if (bound_ == 0 || OwnMemoryBytes() <= bound_) return;
  malloc_trim(0);  // returns memory that is already free
  if (OwnMemoryBytes() <= bound_) return;
  ForgetClosed();
  for (Connection& one : connections_) (void)NewlyReceived(one);
  std::this_thread::sleep_for(kMeasured);
  uint64_t most = 0;
  Connection* flooding = nullptr;
  for (Connection& one : connections_) {
    const uint64_t received = NewlyReceived(one);
    if (received <= most) continue;
    most = received;
    flooding = &one;
  }
  if (most < kMinFlood || CookieOf(flooding->descriptor) != flooding->cookie) return;
  shutdown(flooding->descriptor, SHUT_RDWR);
  LogWarning("this process uses more than ", InGiB(static_cast<double>(bound_)),
             " of memory: closed the connection that received the most, ", most, " bytes in ",
             kMeasured.count(), " ms");
}

}  // namespace cairn::net
