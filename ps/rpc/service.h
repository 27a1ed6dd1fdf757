// The gRPC service of the Servers of a process: adapts calls and streams, and checks the
// callers' permissions.
//
// Everything runs on gRPC's callback threads, and nothing blocks them. `shards` and the gate must outlive the
// service and the grpc::Server that it is registered with.
#pragma once

#include <memory>
#include <string>

#include "cairn/v1/parameter_server.grpc.pb.h"
#include "common/net/security/gate.h"
#include "ps/job/hosted_shards.h"

namespace cairn::ps {

struct Door {
  const net::Gate* gate = nullptr;  // null: anyone may do everything
  std::string chief = "worker/0";   // the task that is the chief, according to the cluster
};

std::unique_ptr<grpc::Service> MakeService(HostedShards& shards, Door door = {});

}  // namespace cairn::ps
