// RingPeer over gRPC, and the service for incoming streams.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "common/net/grpc/grpc_util.h"
#include "common/net/security/gate.h"
#include "grpcpp/impl/service_type.h"
#include "worker/peer/link.h"

namespace cairn::allreduce {

// Connects on first use. `address`: "host:port".
std::unique_ptr<RingPeer> MakeGrpcPeer(const std::string& address, const net::Credentials& credentials);

// Restricts callers: with certificates that name tasks, a worker may greet and stream only as itself.
struct RingDoor {
  const net::Gate* gate = nullptr;            // null: anyone may
  std::function<std::string(int)> task_of{};  // the name of the worker with this number: "worker/3"
};

// `host` and the gate must outlive the gRPC server with which the service is registered.
std::unique_ptr<grpc::Service> MakeRingService(RingHost& host, RingDoor door = {});

}  // namespace cairn::allreduce
