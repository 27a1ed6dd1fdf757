// The servers over gRPC.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "common/net/grpc_util.h"
#include "worker/client/transport.h"

namespace cairn::client {

// `address`: "host:port"; `credentials`: net::CredentialsOf(), shared by the stubs of all servers.
// `part`: of which server the part of a job is meant, where it is not the called one's own. Does not block or
// connect yet.
std::unique_ptr<ServerStub> MakeGrpcStub(const std::string& address, const net::Credentials& credentials,
                                         std::optional<int> part = std::nullopt);

}  // namespace cairn::client
