// Calls and streams to the servers over gRPC.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "client/transport/transport.h"
#include "common/net/grpc/grpc_util.h"

namespace cairn::client {

// `address`: "host:port"; `credentials`: net::CredentialsOf(), shared by the stubs of all servers. `shard`:
// the shard to call, by the index of its home server; nullopt: the called server's own shard. Neither blocks
// nor connects yet.
std::unique_ptr<ServerStub> MakeGrpcStub(const std::string& address, const net::Credentials& credentials,
                                         std::optional<int> shard = std::nullopt);

}  // namespace cairn::client
