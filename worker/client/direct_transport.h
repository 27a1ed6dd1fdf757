// Streams to servers over sockets of their own, and shared memory on the same host; all else over another
// stub.
//
// Whether a server is on this host is not told by names or addresses: its answer to Connect() names a socket
// that it has made under 128 random bits, and either that can be reached from here or the server is
// elsewhere, where it tells a TCP port. Where anything of it does not work, streams go over the other stub,
// as if this were not there. To open a stream takes up to 5 s where the server stands still, and 2 s where
// the port's packets are dropped.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "common/core/clock.h"
#include "common/net/direct/transport.h"
#include "worker/client/transport.h"

namespace cairn::client {

struct DirectTransportOptions {
  net::Transport transport = net::Transport::kShm;
  // Of those that the server's process has; none: its own.
  std::optional<int> part{};
  // What could not be had is tried again at the first Connect() after so long.
  Duration try_again_after = std::chrono::minutes(1);
  // Told how the streams to this server travel when that is first known or changes: "shared memory". May be
  // null; any thread.
  std::function<void(const std::string&)> say{};
};

std::unique_ptr<ServerStub> MakeDirectStub(std::unique_ptr<ServerStub> other,
                                           const DirectTransportOptions& options);

}  // namespace cairn::client
