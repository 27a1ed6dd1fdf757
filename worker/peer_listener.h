// By which other workers reach this one: its port, and, for those of this host, a socket. Made and destroyed
// by main.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/core/clock.h"
#include "common/net/cluster_spec.h"
#include "common/net/local/socket.h"
#include "common/net/tls.h"
#include "grpcpp/impl/service_type.h"
#include "grpcpp/server.h"
#include "worker/allreduce/link.h"
#include "worker/allreduce/local_link.h"

namespace cairn::worker {

// Where a worker that others call listens.
struct ListenFlags {
  std::string address;  // --listen HOST:PORT; empty: 0.0.0.0 and the task's port
  bool reuse_port = false;
};

// The way to a worker: by --transport, where it is of this host.
absl::StatusOr<std::unique_ptr<allreduce::RingPeer>> MakePeer(const std::string& address,
                                                              const net::TlsFiles& tls,
                                                              const std::string& transport);

class PeerListener {
 public:
  struct Args {
    const net::ResolvedCluster& cluster;
    const net::TlsFiles& tls;
    const ListenFlags& listen;
    uint64_t incarnation;
    const char* stakes;  // what who reaches it can read and change: "the gradients"
  };
  // `host` outlives the listener. INVALID_ARGUMENT when the address cannot be had.
  static absl::StatusOr<std::unique_ptr<PeerListener>> Start(allreduce::RingHost& host,
                                                             net::LocalListener local, const Args& args);
  // Streams have a moment to end.
  ~PeerListener();

 private:
  PeerListener() = default;

  std::unique_ptr<grpc::Service> service_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<allreduce::LocalRingService> local_;
};

}  // namespace cairn::worker
