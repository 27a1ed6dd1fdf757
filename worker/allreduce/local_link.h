// Streams of the ring between neighbours of one host, over Unix sockets and shared memory (common/net/local).
//
// A worker's answer to a greeting names a socket that it has made under 128 random bits: either that can be
// reached, or the neighbour is elsewhere, and streams go over the other peer, as they do where anything of it
// does not work.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/core/thread.h"
#include "common/net/local/socket.h"
#include "worker/allreduce/link.h"
#include "worker/client/local_transport.h"

namespace cairn::allreduce {

class LocalRingSession;

// `say`: told how each stream travels, "shared memory"; may be null. To open a stream takes up to 5 s where
// the neighbour stands still.
std::unique_ptr<RingPeer> MakeLocalPeer(std::unique_ptr<RingPeer> other, client::Transport transport,
                                        std::function<void(const std::string&)> say);

// By which a worker is reached so, from construction to destruction.
class LocalRingService {
 public:
  // `host` outlives this. `incarnation`: the worker's, which neighbours must mean.
  LocalRingService(RingHost& host, net::LocalListener listener, uint64_t incarnation);
  // Ends the streams that there are.
  ~LocalRingService();

 private:
  void Listen();

  RingHost& host_;
  const uint64_t incarnation_;
  const net::LocalListener listener_;
  std::atomic<bool> stopping_{false};
  std::vector<std::shared_ptr<LocalRingSession>> sessions_;  // the listening thread's, then the destructor's
  Thread thread_;
};

}  // namespace cairn::allreduce
