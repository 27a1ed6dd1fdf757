// The address at which a task accepts data channel streams, and a function that connects to it.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "cairn/v1/session.pb.h"
#include "common/core/file_descriptor.h"
#include "common/net/data_channel/transport.h"

namespace cairn::net {

// The address of a task's data channel. The task announces it over gRPC to the tasks that may open streams.
struct DataEndpoint {
  std::string local_socket{};  // LocalListener::name; empty: none
  int port = 0;                // the TCP port, at the host that gRPC reaches; 0: none
  std::string key{};           // DataStream::Options::key

  friend bool operator==(const DataEndpoint&, const DataEndpoint&) = default;
};

DataEndpoint FromProto(const v1::DataEndpoint& proto);
v1::DataEndpoint ToProto(const DataEndpoint& endpoint);

// Connects to the task whose gRPC address is `server`, "host:port". UNAVAILABLE, with the reason, if the task
// does not offer this transport or cannot be reached by it. A task that accepts no TCP connection for 2 s
// counts as unreachable: something drops the packets to its port.
absl::StatusOr<FileDescriptor> ConnectDataChannel(const std::string& server, Transport transport,
                                                  const DataEndpoint& endpoint);

}  // namespace cairn::net
