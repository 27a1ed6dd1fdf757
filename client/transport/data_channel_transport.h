// Streams to servers over the data channel: shared memory or a Unix socket within a host, TCP between hosts.
// Calls use another transport.
//
// Names and addresses do not show whether a server is on this host. Instead, the server's answer to Connect()
// names an abstract socket with 128 random bits: a client that can connect to it is on the same host, any
// other client uses the announced TCP port. If the data channel fails in any way, streams use the other stub.
// Opening a stream takes up to 5 s if the server does not respond, and 2 s if packets to its port are
// dropped.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "client/transport/transport.h"
#include "common/core/clock.h"
#include "common/net/data_channel/transport.h"

namespace cairn::client {

struct DataChannelOptions {
  net::Transport transport = net::Transport::kShm;
  // The shard to connect to, by the index of its home server; nullopt: the server's own shard.
  std::optional<int> shard{};
  // A transport that has failed is tried again at the first Connect() after this time.
  Duration try_again_after = std::chrono::minutes(1);
  // Called with the transport of the streams to this server ("shared memory") when it is first known and when
  // it changes. May be null; called by any thread.
  std::function<void(const std::string&)> say{};
};

// Calls and, if the data channel fails, streams use `other`.
std::unique_ptr<ServerStub> MakeDataChannelStub(std::unique_ptr<ServerStub> other,
                                                const DataChannelOptions& options);

}  // namespace cairn::client
