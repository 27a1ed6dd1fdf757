// The primary's end of replication streams: over the data channel of the backup's process if it can be reached,
// otherwise over gRPC.
//
//   call Replicate ── where is the data channel? ──► reached: the stream is a net::DataStream, the call ends
//        │                                     └──► not reached: the stream is the call
//        └ fails: the stream ends with the status of the call
//
// The call comes first, because gRPC checks who calls, and its status says why a backup was not reached.
#pragma once

#include "common/net/data_channel/transport.h"
#include "common/net/grpc/grpc_util.h"
#include "ps/job/active_job.h"

namespace cairn::ps {

// `credentials`: net::CredentialsOf(). `best`: the best transport that may be used.
BackupDialer DialBackup(net::Credentials credentials, net::Transport best);

}  // namespace cairn::ps
