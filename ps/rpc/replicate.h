// The connection between the primary and the backup of a shard, over gRPC (replicate.proto).
#pragma once

#include <memory>

#include "common/net/grpc/grpc_util.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/server_callback.h"
#include "ps/job/hosted_job.h"

namespace cairn::ps {

// The backup's side: serves one stream. Owned by gRPC.
grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* ServeBackup(HostedJob& hosted);

// The primary's side. `credentials`: net::CredentialsOf(). Each stream has its own channel, so that its
// final status comes from a new attempt to connect.
BackupDialer DialBackupByGrpc(net::Credentials credentials);

}  // namespace cairn::ps
