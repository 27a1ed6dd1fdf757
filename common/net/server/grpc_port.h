// The port of a gRPC server, on which connections are accepted here and handed to gRPC.
//
// gRPC's own listener stops for ever when it gets no descriptor, and gives each connection two minutes for
// its handshake. This class reserves the last descriptors (descriptor_reserve.h); ConfigureServer() sets the
// time limit. main() makes the port before the server, and closes it before the server shuts down.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/net/data_channel/socket/descriptor_reserve.h"
#include "common/net/data_channel/socket/tcp_socket.h"
#include "common/net/server/flood_guard.h"
#include "common/system/thread.h"
#include "grpcpp/security/server_credentials.h"
#include "grpcpp/server_builder.h"

namespace cairn::net {

class GrpcPort {
 public:
  // Listens on `address`, "host:port" with port 0 for any, on all addresses of the host; `reuse_port`:
  // another socket may be bound to the port too. gRPC's own listener serves other forms ("unix:/path"). Once
  // the server has been built, `*port` is the port; 0: the address cannot be bound.
  GrpcPort(grpc::ServerBuilder& builder, const std::string& address,
           std::shared_ptr<grpc::ServerCredentials> credentials, bool reuse_port, int* port);
  // Calls Close().
  ~GrpcPort();

  // To be called before Open(). When this process' own memory exceeds `bytes`, the connection that is
  // receiving most is closed (flood_guard.h).
  void BoundMemory(int64_t bytes) { guard_.SetBound(bytes); }
  // Starts to accept connections. To be called once the server has been built.
  void Open();
  // Accepts no more connections.
  void Close();

 private:
  void Run();
  void AcceptFrom(const TcpListener& listener);

  std::vector<TcpListener> listeners_;
  std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> acceptor_;
  DescriptorReserve reserve_;  // only thread_ uses this and guard_
  FloodGuard guard_;
  std::atomic<bool> closing_{false};
  Thread thread_;
};

}  // namespace cairn::net
