// By which other workers reach this one: its port for gRPC, and its ways beside that. Made and destroyed by
// main.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/core/clock.h"
#include "common/net/access.h"
#include "common/net/cluster_spec.h"
#include "common/net/direct/listeners.h"
#include "common/net/gate.h"
#include "common/net/grpc_port.h"
#include "common/net/port_wait.h"
#include "common/net/tls.h"
#include "grpcpp/impl/service_type.h"
#include "grpcpp/server.h"
#include "worker/allreduce/direct_link.h"
#include "worker/allreduce/link.h"

namespace cairn::worker {

// Where a worker that others call listens.
struct ListenFlags {
  std::string address;  // --listen HOST:PORT; empty: 0.0.0.0 and the task's port
  bool reuse_port = false;
  int data_port = 0;  // --data_port
};

// The port by which others call it.
net::TaskPort PeerPort(const net::ResolvedCluster& cluster, const ListenFlags& listen);

// The way to a worker, by --transport.
absl::StatusOr<std::unique_ptr<allreduce::RingPeer>> MakePeer(const std::string& address,
                                                              const net::Access& access,
                                                              const std::string& transport);

// Ours beside gRPC: none that --transport excludes.
net::DirectListeners ListenDirectly(const net::ResolvedCluster& cluster, const net::Access& access,
                                    const ListenFlags& listen, const std::string& transport);

class PeerListener {
 public:
  struct Args {
    const net::ResolvedCluster& cluster;
    const net::Access& access;
    const ListenFlags& listen;
    uint64_t incarnation;
    const char* stakes;                       // what who reaches it can read and change: "the gradients"
    std::function<std::string(int)> task_of;  // allreduce::RingDoor::task_of
  };
  // `host` outlives the listener. INVALID_ARGUMENT when the address cannot be had.
  static absl::StatusOr<std::unique_ptr<PeerListener>> Start(allreduce::RingHost& host,
                                                             net::DirectListeners direct, const Args& args);
  // Streams have a moment to end.
  ~PeerListener();

 private:
  PeerListener() = default;

  std::unique_ptr<net::Gate> gate_;
  std::unique_ptr<grpc::Service> service_;
  std::unique_ptr<net::GrpcPort> port_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<allreduce::DirectRingService> direct_;
};

}  // namespace cairn::worker
