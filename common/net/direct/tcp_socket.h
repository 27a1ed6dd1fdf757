// TCP sockets for streams between hosts that are in no hands of gRPC's.
//
// A connection whose other end, or the way to it, is silently gone ends as one of gRPC's does: after 15 s.
// One that stays on this host has reno as its congestion control, whatever the system's is.
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

// On `host`, a name or a numeric address, of which 0.0.0.0 and :: mean all that this machine has, of both
// kinds; `port` 0: any. UNAVAILABLE, saying why.
absl::StatusOr<TcpListener> ListenByTcp(const std::string& host, int port);
// On all addresses of `host`, at one port, as far as they can be had: at least one. `reuse_port`: another
// socket may hold the port too. UNAVAILABLE, saying why.
absl::StatusOr<std::vector<TcpListener>> ListenByTcpOnAll(const std::string& host, int port, bool reuse_port);
// Waits for the connection at most `limit`, and for the name as long as the system's resolver does.
// DEADLINE_EXCEEDED, or UNAVAILABLE, saying why.
absl::StatusOr<FileDescriptor> ConnectByTcp(const std::string& host, int port,
                                            std::chrono::milliseconds limit);
// The next connection that waits; none when there is none, or no descriptor for it. Does not block.
FileDescriptor AcceptByTcp(const FileDescriptor& listener);
bool IsTcp(const FileDescriptor& socket);
// Waits, at most `limit`, until the other end's kernel knows that a socket which has been shut down ends,
// behind all that was on the way to it. If it takes nothing, what is left is dropped and the connection
// reset.
void EndTcp(const FileDescriptor& socket, std::chrono::milliseconds limit);
// Whether what goes over this socket, which is connected, stays on this host for all that it says: both ends
// have one address, or it is a Unix socket.
bool StaysOnHost(const FileDescriptor& socket);

}  // namespace cairn::net
