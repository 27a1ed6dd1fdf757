#include "ps/replicate.h"

#include <algorithm>
#include <deque>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/core/mutex.h"
#include "common/core/status.h"
#include "common/net/frame.h"
#include "common/net/grpc_util.h"
#include "grpcpp/generic/generic_stub.h"
#include "ps/copy_session.h"

namespace cairn::ps {
namespace {

grpc::ByteBuffer Encode(const v1::CopyAnswer& answer) {
  const std::string bytes = answer.SerializeAsString();
  const grpc::Slice slice(bytes);
  return grpc::ByteBuffer(&slice, 1);
}

absl::StatusOr<v1::CopyAnswer> Decode(const grpc::ByteBuffer& message) {
  grpc::Slice slice;
  v1::CopyAnswer answer;
  if (!message.DumpToSingleSlice(&slice).ok() ||
      !answer.ParseFromArray(slice.begin(), static_cast<int>(slice.size()))) {
    return absl::InvalidArgumentError("copy: an answer that is none");
  }
  return answer;
}

class ServerStream final : public grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>,
                           public CopySink {
 public:
  static ServerStream* Start(Server& server) {
    auto stream = std::make_shared<ServerStream>();
    stream->self_ = stream;
    stream->session_ = std::make_unique<CopySession>(server, stream);
    stream->StartRead(&stream->incoming_);
    return stream.get();
  }

  void OnReadDone(bool ok) override {
    absl::Status status = absl::CancelledError("the server of the part closed the stream");
    if (ok) {
      v1::CopyHeader header;
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

  // Of answers that wait for the one being written, the last tells all.
  void Answer(const v1::CopyAnswer& answer) override {
    MutexLock lock(mutex_);
    next_.set_held(std::max(next_.held(), answer.held()));
    if (answer.beat() != 0) next_.set_beat(answer.beat());
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
    self_.reset();  // perhaps deletes this
  }

 private:
  void WriteNext() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (writing_ || finished_) return;
    if (ending_) {
      finished_ = true;
      Finish(status_);
    } else if (std::exchange(unsaid_, false)) {
      outgoing_ = Encode(next_);
      next_.clear_beat();
      writing_ = true;
      StartWrite(&outgoing_);
    }
  }

  std::shared_ptr<ServerStream> self_;  // until OnDone
  std::unique_ptr<CopySession> session_;
  grpc::ByteBuffer incoming_;

  Mutex mutex_;
  v1::CopyAnswer next_ ABSL_GUARDED_BY(mutex_);
  bool unsaid_ ABSL_GUARDED_BY(mutex_) = false;  // next_ is to be written
  grpc::ByteBuffer outgoing_ ABSL_GUARDED_BY(mutex_);
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
  grpc::Status status_ ABSL_GUARDED_BY(mutex_);
};

class ClientStream final : public CopyStream, grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  ClientStream(const std::string& address, const std::shared_ptr<grpc::ChannelCredentials>& credentials,
               int part, CopyStreamHandler& handler)
      : handler_(handler), channel_(net::MakeChannel(address, credentials)), stub_(channel_) {
    context_.AddMetadata(net::kPartMetadata, absl::StrCat(part));
    stub_.PrepareBidiStreamingCall(&context_, "/cairn.v1.ParameterServer/Replicate", grpc::StubOptions(),
                                   this);
    AddHold();  // for writes that come from other threads, until Close()
    StartRead(&incoming_);
    StartCall();
  }
  ~ClientStream() override {
    context_.TryCancel();
    MutexLock lock(mutex_);
    while (!done_) changed_.Wait(mutex_);  // without limit: a cancelled call always ends
  }

  void Send(uint64_t number, CopyItem item) override {
    MutexLock lock(mutex_);
    if (closing_) return;
    SplitIntoFrames(number, item,
                    [&](const v1::CopyHeader& header, net::FloatSpans payload,
                        const std::shared_ptr<const void>& owner) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
                      outgoing_.push_back(net::EncodeFrame(header, payload, owner));
                      if (outgoing_.size() == 1) StartWrite(&outgoing_.front());
                    });
  }

 private:
  void OnReadDone(bool ok) override {
    if (!ok) {
      Close();
      return;
    }
    if (const auto answer = Decode(incoming_); answer.ok()) {
      handler_.OnAnswer(*answer);
    } else {
      context_.TryCancel();
    }
    StartRead(&incoming_);
  }
  void OnWriteDone(bool ok) override {
    MutexLock lock(mutex_);
    outgoing_.pop_front();
    if (ok && !closing_ && !outgoing_.empty()) StartWrite(&outgoing_.front());
  }
  void OnDone(const grpc::Status& status) override {
    absl::Status result = net::FromGrpc(status);
    if (result.ok() || absl::IsCancelled(result))
      result = absl::UnavailableError("the copy's server closed the stream");
    handler_.OnClosed(result);
    MutexLock lock(mutex_);
    outgoing_.clear();
    done_ = true;
    changed_.NotifyAll();
  }
  void Close() {
    {
      MutexLock lock(mutex_);
      if (std::exchange(closing_, true)) return;
    }
    RemoveHold();
  }

  CopyStreamHandler& handler_;
  const std::shared_ptr<grpc::Channel> channel_;
  grpc::GenericStub stub_;
  grpc::ClientContext context_;
  grpc::ByteBuffer incoming_;

  Mutex mutex_;
  CondVar changed_;
  // The front is being written. Bounded by what the replicator lets its clients do before the copy has it.
  std::deque<grpc::ByteBuffer> outgoing_ ABSL_GUARDED_BY(mutex_);
  bool closing_ ABSL_GUARDED_BY(mutex_) = false;
  bool done_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace

grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* ServeCopy(Server& server) {
  return ServerStream::Start(server);
}

CopyDialer DialCopyByGrpc(std::shared_ptr<grpc::ChannelCredentials> credentials) {
  return [credentials = std::move(credentials)](const std::string& address, int part,
                                                CopyStreamHandler& handler) {
    return std::make_unique<ClientStream>(address, credentials, part, handler);
  };
}

}  // namespace cairn::ps
