// The gRPC face of a Server: adapts calls and streams, decides nothing.
//
// Everything runs on gRPC's callback threads; nothing blocks them. `server` must outlive the service and the
// grpc::Server that it is registered with.
#pragma once

#include <memory>

#include "cairn/v1/parameter_server.grpc.pb.h"
#include "ps/server.h"

namespace cairn::ps {

std::unique_ptr<grpc::Service> MakeService(Server& server);

}  // namespace cairn::ps
