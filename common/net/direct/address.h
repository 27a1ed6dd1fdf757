// Where a task takes streams that are not gRPC's, and the way there.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "common/core/file_descriptor.h"
#include "common/net/direct/transport.h"

namespace cairn::net {

// What a task tells, over gRPC, those that may open streams to it.
struct DirectAddress {
  std::string local_socket{};  // LocalListener::name; empty: none
  int port = 0;                // of TCP, at the host that gRPC reaches; 0: none
  std::string key{};           // DirectStream::Options::key

  friend bool operator==(const DirectAddress&, const DirectAddress&) = default;
};

// As messages have it that tell it.
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

// A socket to the task whose address for gRPC is `server`, "host:port". UNAVAILABLE when there is no such
// way, saying why; so, too, when a TCP connection does not come within 2 s: what is sent to that port is
// dropped.
absl::StatusOr<FileDescriptor> ConnectDirectly(const std::string& server, Transport transport,
                                               const DirectAddress& address);

}  // namespace cairn::net
