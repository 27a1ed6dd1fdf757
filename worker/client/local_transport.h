// Streams over Unix sockets and shared memory to servers of the same host; all else over another stub.
//
// Whether a server is on this host is not told by names or addresses: its answer to Connect() names a socket
// that it has made under 128 random bits, and either that can be reached from here or the server is
// elsewhere. Where anything of it does not work, streams go over the other stub, as if this were not there.
// To open a stream takes up to 5 s where the server stands still.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "worker/client/transport.h"

namespace cairn::client {

// How gradients and values travel.
enum class Transport {
  kTcp,   // as gRPC does
  kUnix,  // a Unix socket where there is one
  kShm,   // shared memory where there is some, else as kUnix
};

// "auto" and "shm" (the same), "unix", "tcp"; the words of --transport.
absl::StatusOr<Transport> ParseTransport(absl::string_view word);

struct LocalTransportOptions {
  Transport transport = Transport::kShm;
  // Of those that the server's process has; none: its own.
  std::optional<int> part{};
  // Told how the streams to this server travel when that is first known or changes: "shared memory". May be
  // null; any thread.
  std::function<void(const std::string&)> say{};
};

std::unique_ptr<ServerStub> MakeLocalStub(std::unique_ptr<ServerStub> other,
                                          const LocalTransportOptions& options);

}  // namespace cairn::client
