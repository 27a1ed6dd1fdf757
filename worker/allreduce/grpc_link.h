// RingPeer over gRPC, and the service by which a worker is reached.
#pragma once

#include <memory>
#include <string>

#include "grpcpp/impl/service_type.h"
#include "grpcpp/security/credentials.h"
#include "worker/allreduce/link.h"

namespace cairn::allreduce {

// Connects when it is first used. `address`: "host:port".
std::unique_ptr<RingPeer> MakeGrpcPeer(const std::string& address,
                                       const std::shared_ptr<grpc::ChannelCredentials>& credentials);

// `host` outlives the server that the service is registered with.
std::unique_ptr<grpc::Service> MakeRingService(RingHost& host);

}  // namespace cairn::allreduce
