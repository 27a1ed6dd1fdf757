// The address at which a task accepts data channel streams, and connecting to it.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "common/core/file_descriptor.h"
#include "common/net/direct/transport.h"

namespace cairn::net {

// What a task announces over gRPC to the tasks that may open streams to it.
struct DirectAddress {
  std::string local_socket{};  // LocalListener::name; empty: none
  int port = 0;                // the TCP port, at the host that gRPC reaches; 0: none
  std::string key{};           // DirectStream::Options::key

  friend bool operator==(const DirectAddress&, const DirectAddress&) = default;
};

// Reads the address from, and writes it to, a response message that announces it.
template <typename Response>
DirectAddress DirectAddressIn(const Response& response) {
  return {.local_socket = response.local_socket(),
          .port = static_cast<int>(response.direct_port()),
          .key = response.direct_key()};
}
template <typename Response>
void Tell(const DirectAddress& address, Response* response) {
  response->set_local_socket(address.local_socket);
  response->set_direct_port(static_cast<uint32_t>(address.port));
  response->set_direct_key(address.key);
}

// Connects to the task whose gRPC address is `server`, "host:port". UNAVAILABLE, with the reason, if the task
// does not offer this transport or cannot be reached by it. A TCP connection that is not established within 2
// s counts as unreachable: something drops the packets to that port.
absl::StatusOr<FileDescriptor> ConnectDirectly(const std::string& server, Transport transport,
                                               const DirectAddress& address);

}  // namespace cairn::net
