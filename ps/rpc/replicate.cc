#include "ps/rpc/replicate.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/core/mutex.h"
#include "common/core/status.h"
#include "common/net/data_channel/data_endpoint.h"
#include "common/net/wire/frame.h"
#include "ps/rpc/backup_session.h"

namespace cairn::ps {
namespace {

grpc::ByteBuffer Encode(const v1::ReplicationAck& answer) {
  const std::string bytes = answer.SerializeAsString();
  const grpc::Slice slice(bytes);
  return grpc::ByteBuffer(&slice, 1);
}

absl::StatusOr<v1::ReplicationAck> Decode(const grpc::ByteBuffer& message) {
  grpc::Slice slice;
  v1::ReplicationAck answer;
  if (!message.DumpToSingleSlice(&slice).ok() ||
      !answer.ParseFromArray(slice.begin(), static_cast<int>(slice.size()))) {
    return absl::InvalidArgumentError("replication: malformed answer");
  }
  return answer;
}

class ServerStream final : public grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>,
                           public ReplicationSink {
 public:
  static ServerStream* Start(Server& server) {
    auto stream = std::make_shared<ServerStream>();
    stream->self_ = stream;
    stream->session_ = std::make_unique<BackupSession>(server.hosted_job(), stream);
    stream->Announce(server);
    stream->StartRead(&stream->incoming_);
    return stream.get();
  }

  void OnReadDone(bool ok) override {
    absl::Status status = absl::CancelledError("the primary closed the stream");
    if (ok) {
      v1::ReplicationHeader header;
      net::DecodedFrame frame;
      status = frame.Decode(incoming_, &header);
      if (status.ok()) status = session_->OnFrame(header, frame.payload());
    }
    if (status.ok()) {
      StartRead(&incoming_);
    } else {
      Close(std::move(status));
    }
  }

  // Answers are cumulative: if several wait to be written, only the last one is sent.
  void Answer(const v1::ReplicationAck& answer) override {
    MutexLock lock(mutex_);
    next_.set_replicated(std::max(next_.replicated(), answer.replicated()));
    if (answer.beat() != 0) next_.set_beat(answer.beat());
    if (answer.keeper() != 0) next_.set_keeper(answer.keeper());
    unsaid_ = true;
    WriteNext();
  }
  void Close(absl::Status reason) override {
    MutexLock lock(mutex_);
    if (!std::exchange(ending_, true)) status_ = net::ToGrpc(reason);
    WriteNext();
  }
  void OnWriteDone(bool ok) override {
    MutexLock lock(mutex_);
    writing_ = false;
    if (!ok) ending_ = true;
    WriteNext();
  }
  void OnCancel() override { Close(absl::CancelledError("cancelled")); }
  void OnDone() override {
    session_.reset();
    self_.reset();  // may delete this
  }

 private:
  // The first answer.
  void Announce(const Server& server) {
    MutexLock lock(mutex_);
    *next_.mutable_data_endpoint() = net::ToProto(server.data_endpoint());
    next_.set_keeper(server.process());
    unsaid_ = true;
    WriteNext();
  }
  void WriteNext() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (writing_ || finished_) return;
    if (ending_) {
      finished_ = true;
      Finish(status_);
    } else if (std::exchange(unsaid_, false)) {
      outgoing_ = Encode(next_);
      next_.clear_beat();
      next_.clear_data_endpoint();
      next_.clear_keeper();
      writing_ = true;
      StartWrite(&outgoing_);
    }
  }

  std::shared_ptr<ServerStream> self_;  // until OnDone
  std::unique_ptr<BackupSession> session_;
  grpc::ByteBuffer incoming_;

  Mutex mutex_;
  v1::ReplicationAck next_ ABSL_GUARDED_BY(mutex_);
  bool unsaid_ ABSL_GUARDED_BY(mutex_) = false;  // next_ has not been written
  grpc::ByteBuffer outgoing_ ABSL_GUARDED_BY(mutex_);
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
  grpc::Status status_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* ServeBackup(Server& server) {
  return ServerStream::Start(server);
}

ReplicateCall::ReplicateCall(const std::string& address, const net::Credentials& credentials, int shard,
                             Callbacks callbacks)
    : callbacks_(std::move(callbacks)), channel_(net::MakeChannel(address, credentials)), stub_(channel_) {
  context().AddMetadata(net::kShardMetadata, absl::StrCat(shard));
  stub_.PrepareBidiStreamingCall(&context(), "/cairn.v1.ParameterServer/Replicate", grpc::StubOptions(),
                                 reactor());
  Open();
}

ReplicateCall::~ReplicateCall() {
  Cancel();
  AwaitEnd();
}

void ReplicateCall::Send(absl::Span<const NumberedItem> items) {
  std::vector<grpc::ByteBuffer> frames;
  PutIntoFrames(items, [&](const v1::ReplicationHeader& header, absl::Span<const float> payload,
                           const std::shared_ptr<const void>& owner) {
    frames.push_back(net::EncodeFrame(header, {&payload, payload.empty() ? size_t{0} : size_t{1}}, owner));
  });
  Write(std::move(frames));
}

absl::Status ReplicateCall::OnMessage(const grpc::ByteBuffer& message) {
  CAIRN_ASSIGN_OR_RETURN(const v1::ReplicationAck answer, Decode(message));
  callbacks_.on_answer(answer);
  return absl::OkStatus();
}

void ReplicateCall::OnEnd(const absl::Status& status) {
  callbacks_.on_end(net::EndOfStream(status, "the backup closed the stream"));
}

}  // namespace cairn::ps
