// The port of a gRPC server, on which connections are accepted here and handed to gRPC.
//
// gRPC's own listener stops for ever when it is refused a descriptor, and gives each connection two minutes
// to greet. Here the last descriptors are kept (descriptor_reserve.h), and ConfigureServer() sets the time
// limit. Made in main, before the server; closed before the server shuts down.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/core/thread.h"
#include "common/net/descriptor_reserve.h"
#include "common/net/direct/tcp_socket.h"
#include "common/net/flood_guard.h"
#include "grpcpp/security/server_credentials.h"
#include "grpcpp/server_builder.h"

namespace cairn::net {

class GrpcPort {
 public:
  // Listens on `address`, "host:port" with port 0 for any, on all addresses of the host; `reuse_port`:
  // another socket may hold the port too. Other forms ("unix:/path") are left to gRPC's listener. `*port` is
  // the port once the server has been built; 0: the address cannot be had.
  GrpcPort(grpc::ServerBuilder& builder, const std::string& address,
           std::shared_ptr<grpc::ServerCredentials> credentials, bool reuse_port, int* port);
  // As Close().
  ~GrpcPort();

  // Before Open(): where this process' own memory is beyond so many bytes, the connection over which most
  // comes is closed (flood_guard.h).
  void BoundMemory(int64_t bytes) { guard_.SetBound(bytes); }
  // Accepts connections from now on: when the server has been built.
  void Open();
  // Accepts no more connections.
  void Close();

 private:
  void Run();
  void AcceptFrom(const TcpListener& listener);

  std::vector<TcpListener> listeners_;
  std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> acceptor_;
  DescriptorReserve reserve_;  // the thread's, as is the next
  FloodGuard guard_;
  std::atomic<bool> closing_{false};
  Thread thread_;
};

}  // namespace cairn::net
