// The servers over gRPC.
#pragma once

#include <memory>
#include <string>

#include "grpcpp/security/credentials.h"
#include "worker/client/transport.h"

namespace cairn::client {

// `address`: "host:port"; `credentials`: net::ChannelCredentialsOf(), shared by the stubs of all servers.
// Does not block or connect yet.
std::unique_ptr<ServerStub> MakeGrpcStub(const std::string& address,
                                         const std::shared_ptr<grpc::ChannelCredentials>& credentials);

}  // namespace cairn::client
