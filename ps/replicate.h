// The link between the server of a part and the one that keeps its copy, over gRPC (replicate.proto).
#pragma once

#include <memory>

#include "common/net/grpc_util.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/server_callback.h"
#include "ps/server.h"

namespace cairn::ps {

// The copy's end of one stream, for the service. Belongs to gRPC.
grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* ServeCopy(Server& server);

// The other end. `credentials`: net::CredentialsOf(). Each stream has a channel of its own, so that
// what is said of it is said of now.
CopyDialer DialCopyByGrpc(net::Credentials credentials);

}  // namespace cairn::ps
