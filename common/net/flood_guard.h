// Closes the connection that floods this process when its memory grows beyond a bound.
//
// gRPC 1.51 keeps all headers of a request, however many come (an HTTP/2 CONTINUATION flood), and
// --memory_limit does not count them. Only who sends how much tells: when the memory is beyond the bound, the
// connection over which most has come at that moment is shut down, and gRPC frees what it kept for it. One
// thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace cairn::net {

class FloodGuard {
 public:
  // Of this process' own memory (RssAnon); 0: no bound.
  void SetBound(int64_t bytes) { bound_ = bytes; }
  // A connection that gRPC owns from now on, and closes.
  void Add(int connection);
  // To be called ten times a second. Blocks for 20 ms when the memory is beyond the bound.
  void Look();

 private:
  // gRPC closes descriptors, and the system gives their numbers to others: the cookie is the socket's alone.
  struct Connection {
    int descriptor = -1;
    uint64_t cookie = 0;
    uint64_t received = 0;  // bytes, at the last look
  };
  // Bytes that have come over it since the last look.
  static uint64_t NewlyReceived(Connection& connection);
  void ForgetClosed();

  int64_t bound_ = 0;
  std::vector<Connection> connections_;
  size_t forget_above_ = 64;
};

}  // namespace cairn::net
