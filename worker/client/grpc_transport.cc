#include "worker/client/grpc_transport.h"

#include <deque>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cairn/v1/parameter_server.grpc.pb.h"
#include "common/core/mutex.h"
#include "common/net/grpc_util.h"
#include "grpcpp/generic/generic_stub.h"

namespace cairn::client {
namespace {

// The stream's messages are raw bytes (net::EncodeFrame), so it goes through the generic stub.
class GrpcStream final : public FrameStream, grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  GrpcStream(grpc::GenericStub& stub, const std::string& part, FrameHandler& handler) : handler_(handler) {
    if (!part.empty()) context_.AddMetadata(net::kPartMetadata, part);
    stub.PrepareBidiStreamingCall(&context_, "/cairn.v1.ParameterServer/Session", grpc::StubOptions(), this);
    AddHold();  // for writes that come from other threads, until Close()
    StartRead(&incoming_);
    StartCall();
  }

  ~GrpcStream() override {
    {
      MutexLock lock(mutex_);
      closed_by_us_ = true;
    }
    context_.TryCancel();
    MutexLock lock(mutex_);
    // No limit: a cancelled call always ends, and the memory that was sent must not be given back before.
    while (!done_) changed_.Wait(mutex_);
  }

  void Send(const v1::ClientHeader& header, net::FloatSpans payload) override {
    grpc::ByteBuffer message = net::EncodeFrame(header, payload, nullptr);
    MutexLock lock(mutex_);
    if (closing_) return;
    outgoing_.push_back(std::move(message));
    if (outgoing_.size() == 1) StartWrite(&outgoing_.front());
  }

 private:
  void OnReadDone(bool ok) override {
    if (!ok) {
      Close();
      return;
    }
    v1::ServerHeader header;
    net::DecodedFrame frame;
    if (absl::Status status = frame.Decode(incoming_, &header); status.ok()) {
      handler_.OnFrame(header, frame.payload());
    } else {
      {
        MutexLock lock(mutex_);
        bad_frame_ = std::move(status);
      }
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
    {
      MutexLock lock(mutex_);
      if (closed_by_us_) {
        result = absl::OkStatus();
      } else if (!bad_frame_.ok()) {
        result = bad_frame_;
      } else if (result.ok() || absl::IsCancelled(result)) {
        result = absl::UnavailableError("the server closed the stream");
      }
    }
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

  FrameHandler& handler_;
  grpc::ClientContext context_;
  grpc::ByteBuffer incoming_;

  Mutex mutex_;
  CondVar changed_;
  std::deque<grpc::ByteBuffer> outgoing_ ABSL_GUARDED_BY(mutex_);  // the front is being written
  bool closing_ ABSL_GUARDED_BY(mutex_) = false;                   // nothing is written any more
  bool closed_by_us_ ABSL_GUARDED_BY(mutex_) = false;
  bool done_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status bad_frame_ ABSL_GUARDED_BY(mutex_);
};

class GrpcStub final : public ServerStub {
 public:
  GrpcStub(const std::string& address, const std::shared_ptr<grpc::ChannelCredentials>& credentials,
           std::optional<int> part)
      : address_(address),
        part_(part.has_value() ? absl::StrCat(*part) : ""),
        channel_(net::MakeChannel(address, credentials)),
        stub_(v1::ParameterServer::NewStub(channel_)),
        generic_stub_(channel_) {}

  absl::Status Connect(const v1::ConnectRequest& request, v1::ConnectResponse* response,
                       Timeout timeout) override {
    return Call(&v1::ParameterServer::Stub::Connect, request, response, timeout);
  }
  absl::Status Create(const v1::CreateRequest& request, v1::CreateResponse* response,
                      Timeout timeout) override {
    return Call(&v1::ParameterServer::Stub::Create, request, response, timeout);
  }
  absl::Status Wait(const v1::WaitRequest& request, v1::WaitResponse* response, Timeout timeout) override {
    return Call(&v1::ParameterServer::Stub::Wait, request, response, timeout);
  }
  absl::Status Join(const v1::JoinRequest& request, v1::JoinResponse* response, Timeout timeout) override {
    return Call(&v1::ParameterServer::Stub::Join, request, response, timeout);
  }
  absl::Status Heartbeat(const v1::HeartbeatRequest& request, v1::HeartbeatResponse* response,
                         Timeout timeout) override {
    return Call(&v1::ParameterServer::Stub::Heartbeat, request, response, timeout);
  }
  absl::Status Leave(const v1::LeaveRequest& request, v1::LeaveResponse* response, Timeout timeout) override {
    return Call(&v1::ParameterServer::Stub::Leave, request, response, timeout);
  }
  absl::Status Mark(const v1::MarkRequest& request, v1::MarkResponse* response, Timeout timeout) override {
    return Call(&v1::ParameterServer::Stub::Mark, request, response, timeout);
  }
  absl::Status Amend(const v1::AmendRequest& request, v1::AmendResponse* response, Timeout timeout) override {
    return Call(&v1::ParameterServer::Stub::Amend, request, response, timeout);
  }
  absl::Status Finish(const v1::FinishRequest& request, v1::FinishResponse* response,
                      Timeout timeout) override {
    return Call(&v1::ParameterServer::Stub::Finish, request, response, timeout);
  }
  absl::Status Promote(const v1::PromoteRequest& request, v1::PromoteResponse* response,
                       Timeout timeout) override {
    return Call(&v1::ParameterServer::Stub::Promote, request, response, timeout);
  }
  std::unique_ptr<FrameStream> OpenStream(FrameHandler& handler) override {
    return std::make_unique<GrpcStream>(generic_stub_, part_, handler);
  }
  std::string address() const override { return address_; }

 private:
  template <typename Request, typename Response>
  absl::Status Call(grpc::Status (v1::ParameterServer::Stub::*method)(grpc::ClientContext*, const Request&,
                                                                      Response*),
                    const Request& request, Response* response, Timeout timeout) {
    grpc::ClientContext context;
    net::SetDeadline(context, timeout);
    if (!part_.empty()) context.AddMetadata(net::kPartMetadata, part_);
    absl::Status status = net::FromGrpc((stub_.get()->*method)(&context, request, response));
    // We cancel no call, but a server that stops cancels those it has not answered.
    if (absl::IsCancelled(status)) status = absl::UnavailableError("the server ended the call");
    return status;
  }

  const std::string address_;
  const std::string part_;  // empty: the called server's own
  const std::shared_ptr<grpc::Channel> channel_;
  const std::unique_ptr<v1::ParameterServer::Stub> stub_;
  grpc::GenericStub generic_stub_;
};

}  // namespace

std::unique_ptr<ServerStub> MakeGrpcStub(const std::string& address,
                                         const std::shared_ptr<grpc::ChannelCredentials>& credentials,
                                         std::optional<int> part) {
  return std::make_unique<GrpcStub>(address, credentials, part);
}

}  // namespace cairn::client
