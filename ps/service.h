// The gRPC face of the Servers of a process: adapts calls and streams, decides nothing.
//
// Everything runs on gRPC's callback threads; nothing blocks them. `parts` must outlive the service and the
// grpc::Server that it is registered with.
#pragma once

#include <memory>

#include "cairn/v1/parameter_server.grpc.pb.h"
#include "ps/parts.h"

namespace cairn::ps {

std::unique_ptr<grpc::Service> MakeService(Parts& parts);

}  // namespace cairn::ps
