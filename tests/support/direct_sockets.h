// Sockets for streams without gRPC, on this machine alone.
#pragma once

#include <chrono>
#include <utility>

#include "common/net/direct/listeners.h"

namespace cairn::test {

inline net::DirectListeners Listeners() {
  return net::DirectListeners(net::ListenLocally().value(), net::ListenByTcp("127.0.0.1", 0).value());
}

// Two connected ends.
inline std::pair<FileDescriptor, FileDescriptor> TcpPair() {
  const net::TcpListener listener = net::ListenByTcp("127.0.0.1", 0).value();
  FileDescriptor one = net::ConnectByTcp("127.0.0.1", listener.port, std::chrono::seconds(60)).value();
  return {std::move(one), net::AcceptByTcp(listener.socket)};
}

}  // namespace cairn::test
