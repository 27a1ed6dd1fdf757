// TCP sockets of the data channel, between hosts.
//
// If the other end or the network silently dies, a connection ends after 15 s, as those of gRPC do. A
// connection within this host uses the congestion control reno, whatever the system's default is.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/core/file_descriptor.h"

namespace cairn::net {

struct TcpListener {
  int port = 0;
  FileDescriptor socket;
};

// Listens on `host`, a name or a numeric address; 0.0.0.0 and :: mean all addresses of this machine, IPv4 and
// IPv6. `port` 0: any port. UNAVAILABLE, with the reason.
absl::StatusOr<TcpListener> ListenByTcp(const std::string& host, int port);
// Listens at one port on as many addresses of `host` as possible, at least one. `reuse_port`: another socket
// may listen on the port too. UNAVAILABLE, with the reason.
absl::StatusOr<std::vector<TcpListener>> ListenByTcpOnAll(const std::string& host, int port, bool reuse_port);
// Waits at most `limit` for the connection, after a name resolution that takes as long as the system's
// resolver needs. DEADLINE_EXCEEDED, or UNAVAILABLE with the reason.
absl::StatusOr<FileDescriptor> ConnectByTcp(const std::string& host, int port,
                                            std::chrono::milliseconds limit);
// The next pending connection; invalid if there is none, or no descriptor for it. Does not block.
FileDescriptor AcceptByTcp(const FileDescriptor& listener);
bool IsTcp(const FileDescriptor& socket);
// Ends a socket that has been shut down: waits at most `limit` until the other end's kernel has received
// everything, including the end. If that takes longer, the unsent rest is dropped and the connection is
// reset.
void EndTcp(const FileDescriptor& socket, std::chrono::milliseconds limit);
// Whether the data of this connected socket stays on this host, as far as its addresses show: both ends have
// the same address, or it is a Unix socket.
bool StaysOnHost(const FileDescriptor& socket);

}  // namespace cairn::net
