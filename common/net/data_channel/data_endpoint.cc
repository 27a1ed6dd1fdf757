#include "common/net/data_channel/data_endpoint.h"

#include <chrono>

#include "common/core/status.h"
#include "common/net/cluster/host_port.h"
#include "common/net/data_channel/socket/socket.h"
#include "common/net/data_channel/socket/tcp_socket.h"

namespace cairn::net {
namespace {

// The time limit for a TCP connection. gRPC has just reached the host, so if the connection gets no answer
// within this time, a firewall is dropping its packets.
constexpr auto kConnecting = std::chrono::seconds(2);

}  // namespace

DataEndpoint FromProto(const v1::DataEndpoint& proto) {
  return {.local_socket = proto.local_socket(), .port = static_cast<int>(proto.port()), .key = proto.key()};
}

v1::DataEndpoint ToProto(const DataEndpoint& endpoint) {
  v1::DataEndpoint proto;
  proto.set_local_socket(endpoint.local_socket);
  proto.set_port(static_cast<uint32_t>(endpoint.port));
  proto.set_key(endpoint.key);
  return proto;
}

absl::StatusOr<FileDescriptor> ConnectDataChannel(const std::string& server, Transport transport,
                                                  const DataEndpoint& endpoint) {
  if (transport == Transport::kTcp && endpoint.port > 0) {
    CAIRN_ASSIGN_OR_RETURN(const HostPort at, HostPort::Parse(server));
    auto socket = ConnectByTcp(at.host, endpoint.port, kConnecting);
    if (absl::IsDeadlineExceeded(socket.status())) return absl::UnavailableError(socket.status().message());
    return socket;
  }
  if (transport > Transport::kTcp && !endpoint.local_socket.empty()) {
    return ConnectLocally(endpoint.local_socket);
  }
  return absl::UnavailableError("the task does not offer this transport");
}

}  // namespace cairn::net
