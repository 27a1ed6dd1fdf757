// The servers over gRPC.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "grpcpp/security/credentials.h"
#include "worker/client/transport.h"

namespace cairn::client {

// `address`: "host:port"; `credentials`: net::ChannelCredentialsOf(), shared by the stubs of all servers.
// `part`: of which server the part of a job is meant, where it is not the called one's own. Does not block or
// connect yet.
std::unique_ptr<ServerStub> MakeGrpcStub(const std::string& address,
                                         const std::shared_ptr<grpc::ChannelCredentials>& credentials,
                                         std::optional<int> part = std::nullopt);

}  // namespace cairn::client
