// RingPeer over gRPC, and the service by which a worker is reached.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "common/net/gate.h"
#include "common/net/grpc_util.h"
#include "grpcpp/impl/service_type.h"
#include "worker/allreduce/link.h"

namespace cairn::allreduce {

// Connects when it is first used. `address`: "host:port".
std::unique_ptr<RingPeer> MakeGrpcPeer(const std::string& address, const net::Credentials& credentials);

// Restricts the callers: with certificates that name tasks, a worker greets and streams only as itself.
struct RingDoor {
  const net::Gate* gate = nullptr;            // null: anyone may
  std::function<std::string(int)> task_of{};  // the name of the worker with this number: "worker/3"
};

// `host` and the gate outlive the server that the service is registered with.
std::unique_ptr<grpc::Service> MakeRingService(RingHost& host, RingDoor door = {});

}  // namespace cairn::allreduce
