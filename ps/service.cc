#include "ps/service.h"

#include <deque>
#include <utility>

#include "common/core/mutex.h"
#include "common/net/frame.h"
#include "common/net/grpc_util.h"
#include "grpcpp/support/server_callback.h"
#include "ps/follow.h"
#include "ps/session.h"

namespace cairn::ps {
namespace {

// One client's stream. gRPC calls it, one callback of a kind at a time; it lives until OnDone and as long as
// an answer still refers to it.
class SessionStream final : public grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>,
                            public SessionSink {
 public:
  static SessionStream* Start(Server& server) {
    auto stream = std::make_shared<SessionStream>();
    stream->self_ = stream;
    stream->session_ = std::make_unique<Session>(server, stream);
    stream->StartRead(&stream->incoming_);
    return stream.get();
  }

  void OnReadDone(bool ok) override {
    if (!ok) {
      End(grpc::Status::OK);
      return;
    }
    v1::ClientHeader header;
    net::DecodedFrame frame;
    absl::Status status = frame.Decode(incoming_, &header);
    if (status.ok()) status = session_->OnFrame(header, frame.payload());
    if (!status.ok()) {
      End(net::ToGrpc(status));
      return;
    }
    StartRead(&incoming_);
  }

  void Send(const v1::ServerHeader& header, net::FloatSpans payload,
            const std::shared_ptr<const void>& owner) override {
    grpc::ByteBuffer message = net::EncodeFrame(header, payload, owner);
    MutexLock lock(mutex_);
    if (ending_) return;
    outgoing_.push_back(std::move(message));
    if (outgoing_.size() == 1) StartWrite(&outgoing_.front());
  }

  void OnWriteDone(bool ok) override {
    MutexLock lock(mutex_);
    outgoing_.pop_front();
    if (!ok) ending_ = true;
    if (ending_) {
      outgoing_.clear();
      FinishOnce();
    } else if (!outgoing_.empty()) {
      StartWrite(&outgoing_.front());
    }
  }

  void OnCancel() override { End(grpc::Status::CANCELLED); }

  void OnDone() override {
    session_.reset();
    self_.reset();  // perhaps deletes this
  }

 private:
  // No frame is sent after this; the stream finishes when the one under way has gone.
  void End(grpc::Status status) {
    MutexLock lock(mutex_);
    if (!ending_) {
      ending_ = true;
      status_ = std::move(status);
    }
    if (outgoing_.empty()) {
      FinishOnce();
    } else if (outgoing_.size() > 1) {
      outgoing_.erase(outgoing_.begin() + 1, outgoing_.end());
    }
  }
  void FinishOnce() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (!std::exchange(finished_, true)) Finish(status_);
  }

  std::shared_ptr<SessionStream> self_;  // until OnDone
  std::unique_ptr<Session> session_;
  grpc::ByteBuffer incoming_;

  Mutex mutex_;
  std::deque<grpc::ByteBuffer> outgoing_ ABSL_GUARDED_BY(mutex_);  // the front is being written
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
  grpc::Status status_ ABSL_GUARDED_BY(mutex_);
};

// Session is served as raw bytes, because frames are taken apart without copies; the rest as protobuf.
using CallbackService = v1::ParameterServer::WithRawCallbackMethod_Session<
    v1::ParameterServer::WithCallbackMethod_Connect<v1::ParameterServer::WithCallbackMethod_Create<
        v1::ParameterServer::WithCallbackMethod_Wait<v1::ParameterServer::WithCallbackMethod_Join<
            v1::ParameterServer::WithCallbackMethod_Heartbeat<v1::ParameterServer::WithCallbackMethod_Leave<
                v1::ParameterServer::WithCallbackMethod_Mark<v1::ParameterServer::WithCallbackMethod_Finish<
                    v1::ParameterServer::WithCallbackMethod_Follow<v1::ParameterServer::Service>>>>>>>>>>;

class Service final : public CallbackService {
 public:
  explicit Service(Server& server) : server_(server) {}

  grpc::ServerUnaryReactor* Connect(grpc::CallbackServerContext* context, const v1::ConnectRequest* request,
                                    v1::ConnectResponse* response) override {
    return Call(context, &Server::Connect, request, response);
  }
  grpc::ServerUnaryReactor* Create(grpc::CallbackServerContext* context, const v1::CreateRequest* request,
                                   v1::CreateResponse* response) override {
    return Call(context, &Server::Create, request, response);
  }
  grpc::ServerUnaryReactor* Wait(grpc::CallbackServerContext* context, const v1::WaitRequest* request,
                                 v1::WaitResponse* response) override {
    return Call(context, &Server::Wait, request, response);
  }
  grpc::ServerUnaryReactor* Join(grpc::CallbackServerContext* context, const v1::JoinRequest* request,
                                 v1::JoinResponse* response) override {
    return Call(context, &Server::Join, request, response);
  }
  grpc::ServerUnaryReactor* Heartbeat(grpc::CallbackServerContext* context,
                                      const v1::HeartbeatRequest* request,
                                      v1::HeartbeatResponse* response) override {
    return Call(context, &Server::Heartbeat, request, response);
  }
  grpc::ServerUnaryReactor* Leave(grpc::CallbackServerContext* context, const v1::LeaveRequest* request,
                                  v1::LeaveResponse* response) override {
    return Call(context, &Server::Leave, request, response);
  }
  grpc::ServerUnaryReactor* Mark(grpc::CallbackServerContext* context, const v1::MarkRequest* request,
                                 v1::MarkResponse* response) override {
    return Call(context, &Server::Mark, request, response);
  }
  grpc::ServerUnaryReactor* Finish(grpc::CallbackServerContext* context, const v1::FinishRequest* request,
                                   v1::FinishResponse* response) override {
    return Call(context, &Server::Finish, request, response);
  }
  grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* Session(
      grpc::CallbackServerContext*) override {
    return SessionStream::Start(server_);
  }
  grpc::ServerBidiReactor<v1::FollowerMessage, v1::LeaderMessage>* Follow(
      grpc::CallbackServerContext*) override {
    return ServeFollower(server_);
  }

 private:
  template <typename Request, typename Response>
  grpc::ServerUnaryReactor* Call(grpc::CallbackServerContext* context,
                                 void (Server::*method)(const Request&, Reply<Response>),
                                 const Request* request, Response* response) {
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    (server_.*method)(*request, [reactor, response](absl::StatusOr<Response> result) {
      if (result.ok()) *response = *std::move(result);
      reactor->Finish(net::ToGrpc(result.status()));
    });
    return reactor;
  }

  Server& server_;
};

}  // namespace

std::unique_ptr<grpc::Service> MakeService(Server& server) {
  return std::make_unique<Service>(server);
}

}  // namespace cairn::ps
