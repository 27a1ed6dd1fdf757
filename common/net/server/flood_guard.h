// Closes the connection that floods this process when its memory grows beyond a bound.
//
// gRPC 1.51 keeps all headers of a request, however many arrive (an HTTP/2 CONTINUATION flood), and
// --memory_limit does not count them. Only the number of bytes received shows which connection floods: when
// memory exceeds the bound, the connection that is receiving most is shut down, and gRPC frees the headers
// that it kept. One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace cairn::net {

class FloodGuard {
 public:
  // Bounds this process' own memory (RssAnon), in bytes; 0: no bound.
  void SetBound(int64_t bytes) { bound_ = bytes; }
  // Watches a connection. gRPC owns the descriptor and closes it.
  void Add(int connection);
  // To be called ten times a second. Blocks for 20 ms when the memory is beyond the bound.
  void Look();

 private:
  // After gRPC closes a descriptor, the system reuses its number. The cookie identifies the socket.
  struct Connection {
    int descriptor = -1;
    uint64_t cookie = 0;
    uint64_t received = 0;  // bytes received by the time of the last Look()
  };
  // The bytes received on the connection since the last call.
  static uint64_t NewlyReceived(Connection& connection);
  void ForgetClosed();

  int64_t bound_ = 0;
  std::vector<Connection> connections_;
  size_t forget_above_ = 64;
};

}  // namespace cairn::net
