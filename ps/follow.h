// The link between ps/0, which sequences a job for all its servers, and the others (follow.proto).
//
// A follower opens one stream to ps/0, asks for the log from where it stands, reports what it holds, and
// executes what it is told. A broken stream is opened again, for as long as the job lives; both sides then
// say again what the other may have missed.
#pragma once

#include <memory>
#include <string>

#include "cairn/v1/parameter_server.grpc.pb.h"
#include "common/net/grpc_util.h"
#include "ps/permissions.h"
#include "ps/server.h"

namespace cairn::ps {

// ps/0's end of one follower's stream, for the service. Belongs to gRPC.
grpc::ServerBidiReactor<v1::FollowerMessage, v1::LeaderMessage>* ServeFollower(Server& server,
                                                                               Permissions permissions);

// The follower's end: connects server `index` to the job's ps/0. `credentials`: net::CredentialsOf().
ActiveJob::LeaderConnector ConnectByGrpc(int index, net::Credentials credentials);

}  // namespace cairn::ps
