// The address at which a task accepts data channel streams, and connecting to it.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "common/core/file_descriptor.h"
#include "common/net/data_channel/transport.h"

namespace cairn::net {

// What a task announces over gRPC to the tasks that may open streams to it.
struct DataAddress {
  std::string local_socket{};  // LocalListener::name; empty: none
  int port = 0;                // the TCP port, at the host that gRPC reaches; 0: none
  std::string key{};           // DataStream::Options::key

  friend bool operator==(const DataAddress&, const DataAddress&) = default;
};

// Reads the address from, and writes it to, a response message that announces it.
template <typename Response>
DataAddress DataAddressIn(const Response& response) {
  return {.local_socket = response.local_socket(),
          .port = static_cast<int>(response.data_port()),
          .key = response.data_key()};
}
template <typename Response>
void Publish(const DataAddress& address, Response* response) {
  response->set_local_socket(address.local_socket);
  response->set_data_port(static_cast<uint32_t>(address.port));
  response->set_data_key(address.key);
}

// Connects to the task whose gRPC address is `server`, "host:port". UNAVAILABLE, with the reason, if the task
// does not offer this transport or cannot be reached by it. A TCP connection that is not established within 2
// s counts as unreachable: something drops the packets to that port.
absl::StatusOr<FileDescriptor> ConnectDataChannel(const std::string& server, Transport transport,
                                                  const DataAddress& address);

}  // namespace cairn::net
