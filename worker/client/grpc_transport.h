// The servers over gRPC.
#pragma once

#include <memory>
#include <string>

#include "worker/client/transport.h"

namespace cairn::client {

// `address`: "host:port". Does not block or connect yet.
std::unique_ptr<ServerStub> MakeGrpcStub(const std::string& address);

}  // namespace cairn::client
