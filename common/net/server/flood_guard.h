// Closes the connection that floods this process when its memory grows beyond a bound.
//
// gRPC 1.51 keeps all headers of a request, however many arrive (an HTTP/2 CONTINUATION flood), and
// --memory_limit does not count them. Only the number of bytes received shows which connection floods: when
// memory exceeds the bound, the connection that is receiving most is shut down, and gRPC frees the headers
// that it kept. One thread.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace cairn::net {

class FloodGuard {
 public:
  // Bounds this process' own memory (RssAnon), in bytes; 0: no bound.
  void SetBound(int64_t bytes) { bound_ = bytes; }
  // Watches a connection. gRPC owns the descriptor and closes it.
  void Add(int connection);
  // Compares the memory with the bound. Returns the time after which to call it again: shorter while the
  // memory is beyond half of the bound, because a flood from this host brings a gigabyte a second.
  std::chrono::milliseconds Look();

 private:
  // After gRPC closes a descriptor, the system reuses its number. The cookie identifies the socket.
  struct Connection {
    int descriptor = -1;
    uint64_t cookie = 0;
    uint64_t received = 0;  // bytes received by the time of the last Look() that counted
  };
  // The connection that received the most bytes since the last call.
  struct Most {
    const Connection* connection = nullptr;
    uint64_t bytes = 0;
  };
  Most CountReceived();
  void ForgetClosed();

  int64_t bound_ = 0;
  std::optional<std::chrono::steady_clock::time_point> counted_;  // when the last Look() counted, if it did
  std::vector<Connection> connections_;
  size_t forget_above_ = 64;
};

}  // namespace cairn::net
