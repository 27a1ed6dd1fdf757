// Sockets on this machine, for streams without gRPC.
#pragma once

#include <chrono>
#include <string>
#include <utility>

#include "common/net/data_channel/listeners.h"

namespace cairn::test {

inline net::DataListeners Listeners() {
  return net::DataListeners(net::ListenLocally().value(), net::ListenByTcp("127.0.0.1", 0).value());
}

// Two connected ends. The second one listened on `host`. With 127.0.0.2 the ends have different addresses, as
// on two hosts.
inline std::pair<FileDescriptor, FileDescriptor> TcpPair(const std::string& host = "127.0.0.1") {
  const net::TcpListener listener = net::ListenByTcp(host, 0).value();
  FileDescriptor one = net::ConnectByTcp(host, listener.port, std::chrono::seconds(60)).value();
  return {std::move(one), net::AcceptByTcp(listener.socket)};
}

}  // namespace cairn::test
