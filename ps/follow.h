// The link between ps/0, which sequences a synchronous job, and the other servers (follow.proto).
//
// A follower opens one stream to ps/0, asks for the log from where it stands, reports what it holds, and
// executes what it is told. A broken stream is opened again, for as long as the job lives; both sides then
// say again what the other may have missed.
#pragma once

#include <memory>
#include <string>

#include "cairn/v1/parameter_server.grpc.pb.h"
#include "ps/server.h"

namespace cairn::ps {

// ps/0's end of one follower's stream, for the service. Belongs to gRPC.
grpc::ServerBidiReactor<v1::FollowerMessage, v1::LeaderMessage>* ServeFollower(Server& server);

// The follower's end: connects server `index` to the job's ps/0.
ActiveJob::LeaderConnector ConnectByGrpc(int index);

v1::Decision ToProto(const LogEntry& entry);
// INVALID_ARGUMENT for a decision of no known kind.
absl::StatusOr<LogEntry> FromProto(const v1::Decision& decision);

}  // namespace cairn::ps
