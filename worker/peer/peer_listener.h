// The endpoints through which other workers reach this one: its gRPC port and its data channels. Owned by
// AllReduceTask, or by a stage worker.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/core/clock.h"
#include "common/net/cluster/cluster_spec.h"
#include "common/net/data_channel/listeners.h"
#include "common/net/security/access.h"
#include "common/net/security/gate.h"
#include "common/net/security/tls.h"
#include "common/net/server/grpc_port.h"
#include "common/net/server/port_wait.h"
#include "grpcpp/impl/service_type.h"
#include "grpcpp/server.h"
#include "worker/peer/data_link.h"
#include "worker/peer/link.h"

namespace cairn::worker {

// Where a worker listens for other workers.
struct ListenFlags {
  std::string address;  // --listen HOST:PORT; empty: 0.0.0.0 and the task's port
  bool reuse_port = false;
  int data_port = 0;  // --data_port
};

// The gRPC port for other workers.
net::TaskPort PeerPort(const net::ResolvedCluster& cluster, const ListenFlags& listen);

// A connection to the worker at `address`, over the transport that --transport selects.
absl::StatusOr<std::unique_ptr<allreduce::RingPeer>> MakePeer(const std::string& address,
                                                              const net::Access& access,
                                                              const std::string& transport);

// This worker's listeners for data channels; --transport restricts which ones are opened.
net::DataListeners ListenForData(const net::ResolvedCluster& cluster, const net::Access& access,
                                 const ListenFlags& listen, const std::string& transport);

class PeerListener {
 public:
  struct Args {
    const net::ResolvedCluster& cluster;
    const net::Access& access;
    const ListenFlags& listen;
    uint64_t incarnation;
    // The data that a connected peer can read and change, named in a warning: "the gradients".
    const char* stakes;
    std::function<std::string(int)> task_of;  // see allreduce::RingDoor::task_of
  };
  // `host` must outlive the listener. INVALID_ARGUMENT if the port cannot be opened.
  static absl::StatusOr<std::unique_ptr<PeerListener>> Start(allreduce::RingHost& host,
                                                             net::DataListeners data_listeners,
                                                             const Args& args);
  // Gives open streams a moment to end.
  ~PeerListener();

 private:
  PeerListener() = default;

  std::unique_ptr<net::Gate> gate_;
  std::unique_ptr<grpc::Service> service_;
  std::unique_ptr<net::GrpcPort> port_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<allreduce::DataRingService> data_service_;
};

}  // namespace cairn::worker
