// The replication stream between the primary and the backup of a shard (replicate.proto) over gRPC: the call
// Replicate. BackupDialer (backup_dialer.h) uses it to find the data channel, and where there is none.
#pragma once

#include <memory>
#include <string>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "cairn/v1/replicate.pb.h"
#include "common/net/grpc/grpc_streams.h"
#include "common/net/grpc/grpc_util.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/server_callback.h"
#include "ps/job/server.h"

namespace cairn::ps {

// The backup's side: announces the data channel of `server`, and serves one stream. Owned by gRPC.
grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* ServeBackup(Server& server);

// The primary's side. Each call has its own channel, so that its final status comes from a new attempt to
// connect. Thread-safe.
class ReplicateCall final : net::ClientStream<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  // Called by gRPC's threads, one call at a time; must not block.
  struct Callbacks {
    absl::AnyInvocable<void(const v1::ReplicationAck& answer)> on_answer;
    absl::AnyInvocable<void(const absl::Status& status)> on_end;  // the last call
  };
  // `credentials`: net::CredentialsOf().
  ReplicateCall(const std::string& address, const net::Credentials& credentials, int shard,
                Callbacks callbacks);
  // Ends the call, and returns after on_end().
  ~ReplicateCall();

  // Does not block. The replicator bounds the queue of items: clients get no answers while the backup is
  // behind.
  void Send(absl::Span<const NumberedItem> items);
  // Ends the call soon.
  using ClientStream::Cancel;
  // Waits for on_end(), which follows Cancel() soon.
  using ClientStream::AwaitEnd;

 private:
  absl::Status OnMessage(const grpc::ByteBuffer& message) override;
  void OnEnd(const absl::Status& status) override;

  Callbacks callbacks_;
  const std::shared_ptr<grpc::Channel> channel_;
  grpc::GenericStub stub_;
};

}  // namespace cairn::ps
