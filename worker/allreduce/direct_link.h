// Streams of the ring between neighbours over sockets of their own (common/net/direct), and shared memory on
// one host.
//
// A worker's answer to a greeting names a socket that it has made under 128 random bits: either that can be
// reached, or the neighbour is elsewhere, where it tells a TCP port. Streams go over the other peer where
// anything of it does not work.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/core/thread.h"
#include "common/net/direct/listeners.h"
#include "common/net/direct/transport.h"
#include "worker/allreduce/link.h"

namespace cairn::allreduce {

class DirectRingSession;

// `address`: the neighbour's for gRPC. `say`: told how each stream travels, "shared memory"; may be null. To
// open a stream takes up to 5 s where the neighbour stands still, and 2 s where its port's packets are
// dropped.
std::unique_ptr<RingPeer> MakeDirectPeer(std::unique_ptr<RingPeer> other, const std::string& address,
                                         net::Transport transport,
                                         std::function<void(const std::string&)> say);

// By which a worker is reached so, from construction to destruction.
class DirectRingService {
 public:
  // `host` outlives this. `incarnation`: the worker's, which neighbours must mean.
  DirectRingService(RingHost& host, net::DirectListeners listeners, uint64_t incarnation);
  // Ends the streams that there are.
  ~DirectRingService();

 private:
  void Listen();

  RingHost& host_;
  const uint64_t incarnation_;
  net::DirectListeners listeners_;  // the listening thread's
  std::atomic<bool> stopping_{false};
  std::vector<std::shared_ptr<DirectRingSession>> sessions_;  // the listening thread's, then the destructor's
  Thread thread_;
};

}  // namespace cairn::allreduce
