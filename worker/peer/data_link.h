// Streams of the ring between neighbours over the data channel (common/net/data_channel), with shared memory
// within a host.
//
// A worker's answer to a handshake names an abstract socket with 128 random bits. A neighbour that can
// connect to it is on the same host; any other neighbour uses the announced TCP port. If no data channel can
// be opened, a stream uses gRPC.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/net/data_channel/listeners.h"
#include "common/net/data_channel/transport.h"
#include "common/system/thread.h"
#include "worker/peer/link.h"

namespace cairn::allreduce {

class DataRingSession;

// `address`: the neighbour's address for gRPC. `say`: called with the transport of each stream ("shared
// memory"); may be null. Opening a stream takes up to 5 s if the neighbour does not respond, and 2 s if
// packets to its port are dropped. `other`: the peer over gRPC.
std::unique_ptr<RingPeer> MakeDataPeer(std::unique_ptr<RingPeer> other, const std::string& address,
                                       net::Transport transport, std::function<void(const std::string&)> say);

// Accepts streams over the data channel, from construction to destruction.
class DataRingService {
 public:
  // `host` must outlive this object. `incarnation`: this worker's; handshakes must name it.
  DataRingService(RingHost& host, net::DataListeners listeners, uint64_t incarnation);
  // Closes all streams.
  ~DataRingService();

 private:
  void Listen();

  RingHost& host_;
  const uint64_t incarnation_;
  net::DataListeners listeners_;  // used by the listening thread
  std::atomic<bool> stopping_{false};
  // Used by the listening thread, then by the destructor.
  std::vector<std::shared_ptr<DataRingSession>> sessions_;
  Thread thread_;
};

}  // namespace cairn::allreduce
