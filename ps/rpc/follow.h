// The connection between ps/0, which sequences a job for all its servers, and the other
// servers (follow.proto).
//
// A follower opens one stream to ps/0, subscribes to the log from its current position, reports its pushes
// and sums, and executes the entries it receives. A broken stream is reopened while the job lives; both sides
// then repeat what the other may have missed.
#pragma once

#include <memory>
#include <string>

#include "cairn/v1/parameter_server.grpc.pb.h"
#include "common/net/grpc/grpc_util.h"
#include "ps/job/server.h"
#include "ps/rpc/permissions.h"

namespace cairn::ps {

// The side of ps/0: serves one follower's stream. Owned by gRPC.
grpc::ServerBidiReactor<v1::FollowerMessage, v1::LeaderMessage>* ServeFollower(Server& server,
                                                                               Permissions permissions);

// The follower's side: connects server `index` to the job's ps/0. `credentials`: net::CredentialsOf().
ActiveJob::LeaderConnector ConnectByGrpc(int index, net::Credentials credentials);

}  // namespace cairn::ps
