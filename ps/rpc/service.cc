#include "ps/rpc/service.h"

#include <atomic>
#include <optional>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/core/status.h"
#include "common/net/grpc/grpc_streams.h"
#include "common/net/grpc/grpc_util.h"
#include "common/net/wire/frame.h"
#include "grpcpp/support/server_callback.h"
#include "ps/rpc/follow.h"
#include "ps/rpc/permissions.h"
#include "ps/rpc/replicate.h"
#include "ps/rpc/session.h"

namespace cairn::ps {
namespace {

// Limit on open streams; each may hold requests and their answers (ps/rpc/session.h).
constexpr int kMaxSessions = 4096;

// One client's stream. It lives until OnDone(), and while an answer refers to it.
class SessionStream final : public net::ServerStream<grpc::ByteBuffer, grpc::ByteBuffer>, public SessionSink {
 public:
  // `count`: the number of open streams. It includes this one from now until OnDone().
  static SessionStream* Start(Server& server, Permissions permissions, std::atomic<int>& count) {
    auto stream = std::make_shared<SessionStream>(count);
    stream->self_ = stream;
    if (++count > kMaxSessions) {
      stream->End(net::ToGrpc(
          absl::ResourceExhaustedError(absl::StrCat("more than ", kMaxSessions, " sessions are open"))));
      return stream.get();
    }
    stream->session_ = std::make_unique<Session>(server, stream, std::move(permissions));
    stream->Open();
    return stream.get();
  }

  explicit SessionStream(std::atomic<int>& count) : count_(count) {}

  void Send(const v1::ServerHeader& header, net::FloatSpans payload,
            const std::shared_ptr<const void>& owner) override {
    Write(net::EncodeFrame(header, payload, owner));
  }
  void SendValues(const v1::ServerHeader& header, net::FloatSpans payload,
                  const std::shared_ptr<const void>& owner) override {
    Write(net::EncodeFrame(header, payload, owner), header.chunk().offset());
  }

  void OnDone() override {
    session_.reset();
    --count_;
    self_.reset();  // may delete this
  }

 private:
  absl::Status OnMessage(const grpc::ByteBuffer& message) override {
    v1::ClientHeader header;
    net::DecodedFrame frame;
    CAIRN_RETURN_IF_ERROR(frame.Decode(message, &header));
    return session_->OnFrame(header, frame.payload());
  }

  std::atomic<int>& count_;
  std::shared_ptr<SessionStream> self_;  // until OnDone
  std::unique_ptr<Session> session_;
};

// The shard that a call is for; none if the metadata does not name one.
std::optional<int> ShardOf(const grpc::CallbackServerContext& context) {
  const auto& metadata = context.client_metadata();
  const auto found = metadata.find(net::kShardMetadata);
  int shard = -1;
  if (found == metadata.end()) return std::nullopt;
  if (!absl::SimpleAtoi(absl::string_view(found->second.data(), found->second.size()), &shard)) shard = -1;
  return shard;
}

// Session is served as raw bytes, because frames are decoded without copies; the rest as protobuf.
using CallbackService = v1::ParameterServer::WithRawCallbackMethod_Session<
    v1::ParameterServer::WithCallbackMethod_Connect<v1::ParameterServer::WithCallbackMethod_Create<
        v1::ParameterServer::WithCallbackMethod_Wait<v1::ParameterServer::WithCallbackMethod_Join<
            v1::ParameterServer::WithCallbackMethod_Heartbeat<v1::ParameterServer::WithCallbackMethod_Leave<
                v1::ParameterServer::WithCallbackMethod_BatchMean<
                    v1::ParameterServer::WithCallbackMethod_PlaceMarker<
                        v1::ParameterServer::WithCallbackMethod_Finish<
                            v1::ParameterServer::WithCallbackMethod_ChangeConfig<
                                v1::ParameterServer::WithCallbackMethod_Follow<
                                    v1::ParameterServer::WithRawCallbackMethod_Replicate<
                                        v1::ParameterServer::WithCallbackMethod_Promote<
                                            v1::ParameterServer::Service>>>>>>>>>>>>>>;

class Service final : public CallbackService {
 public:
  Service(HostedShards& shards, Door door) : shards_(shards), door_(std::move(door)) {}

  grpc::ServerUnaryReactor* Connect(grpc::CallbackServerContext* context, const v1::ConnectRequest* request,
                                    v1::ConnectResponse* response) override {
    return Call(Locate(*context), context, &Server::Connect, request, response);
  }
  grpc::ServerUnaryReactor* Create(grpc::CallbackServerContext* context, const v1::CreateRequest* request,
                                   v1::CreateResponse* response) override {
    return Call(Find(*context), context, &Server::Create, request, response);
  }
  grpc::ServerUnaryReactor* Wait(grpc::CallbackServerContext* context, const v1::WaitRequest* request,
                                 v1::WaitResponse* response) override {
    return Call(Find(*context), context, &Server::Wait, request, response);
  }
  grpc::ServerUnaryReactor* Join(grpc::CallbackServerContext* context, const v1::JoinRequest* request,
                                 v1::JoinResponse* response) override {
    v1::JoinRequest from = *request;
    from.mutable_process()->set_address(
        // gRPC escapes the brackets of IPv6 addresses.
        absl::StrReplaceAll(context->peer(), {{"%5B", "["}, {"%5D", "]"}}));
    return Call(Find(*context), context, &Server::Join, &from, response);
  }
  grpc::ServerUnaryReactor* Heartbeat(grpc::CallbackServerContext* context,
                                      const v1::HeartbeatRequest* request,
                                      v1::HeartbeatResponse* response) override {
    return Call(Find(*context), context, &Server::Heartbeat, request, response);
  }
  grpc::ServerUnaryReactor* Leave(grpc::CallbackServerContext* context, const v1::LeaveRequest* request,
                                  v1::LeaveResponse* response) override {
    return Call(Find(*context), context, &Server::Leave, request, response);
  }
  grpc::ServerUnaryReactor* BatchMean(grpc::CallbackServerContext* context,
                                      const v1::BatchMeanRequest* request,
                                      v1::BatchMeanResponse* response) override {
    return Call(Find(*context), context, &Server::BatchMean, request, response);
  }
  grpc::ServerUnaryReactor* PlaceMarker(grpc::CallbackServerContext* context,
                                        const v1::PlaceMarkerRequest* request,
                                        v1::PlaceMarkerResponse* response) override {
    return Call(Find(*context), context, &Server::PlaceMarker, request, response);
  }
  grpc::ServerUnaryReactor* ChangeConfig(grpc::CallbackServerContext* context,
                                         const v1::ChangeConfigRequest* request,
                                         v1::ChangeConfigResponse* response) override {
    return Call(Find(*context), context, &Server::ChangeConfig, request, response);
  }
  grpc::ServerUnaryReactor* Finish(grpc::CallbackServerContext* context, const v1::FinishRequest* request,
                                   v1::FinishResponse* response) override {
    return Call(Find(*context), context, &Server::Finish, request, response);
  }
  grpc::ServerUnaryReactor* Promote(grpc::CallbackServerContext* context, const v1::PromoteRequest* request,
                                    v1::PromoteResponse* response) override {
    return Call(Locate(*context), context, &Server::Promote, request, response);
  }
  grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* Session(
      grpc::CallbackServerContext* context) override {
    auto permissions = Admit(*context);
    if (!permissions.ok())
      return new net::RefusedStream<grpc::ByteBuffer, grpc::ByteBuffer>(permissions.status());
    auto server = Find(*context);
    if (!server.ok()) return new net::RefusedStream<grpc::ByteBuffer, grpc::ByteBuffer>(server.status());
    return SessionStream::Start(**server, *std::move(permissions), sessions_);
  }
  grpc::ServerBidiReactor<v1::FollowerMessage, v1::LeaderMessage>* Follow(
      grpc::CallbackServerContext* context) override {
    auto permissions = Admit(*context);
    if (!permissions.ok())
      return new net::RefusedStream<v1::FollowerMessage, v1::LeaderMessage>(permissions.status());
    auto server = Find(*context);
    if (!server.ok()) return new net::RefusedStream<v1::FollowerMessage, v1::LeaderMessage>(server.status());
    return ServeFollower(**server, *std::move(permissions));
  }
  grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* Replicate(
      grpc::CallbackServerContext* context) override {
    const auto permissions = Admit(*context);
    absl::Status allowed = permissions.status();
    if (allowed.ok()) allowed = permissions->CheckReplicate();
    if (!allowed.ok()) return new net::RefusedStream<grpc::ByteBuffer, grpc::ByteBuffer>(allowed);
    const std::optional<int> shard = ShardOf(*context);
    absl::StatusOr<Server*> server = absl::FailedPreconditionError("replication: the call names no shard");
    if (shard.has_value()) server = shards_.ForBackup(*shard);
    if (!server.ok()) return new net::RefusedStream<grpc::ByteBuffer, grpc::ByteBuffer>(server.status());
    return ServeBackup(**server);
  }

 private:
  template <typename Request, typename Response>
  grpc::ServerUnaryReactor* Call(const absl::StatusOr<Server*>& server, grpc::CallbackServerContext* context,
                                 void (Server::*method)(const Request&, Reply<Response>),
                                 const Request* request, Response* response) {
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    const absl::Status allowed = CheckAllowed(*context, *request, server);
    if (!allowed.ok()) {
      reactor->Finish(net::ToGrpc(allowed));
      return reactor;
    }
    ((*server)->*method)(*request, [reactor, response](absl::StatusOr<Response> result) {
      if (result.ok()) *response = *std::move(result);
      reactor->Finish(net::ToGrpc(result.status()));
    });
    return reactor;
  }

  absl::StatusOr<Permissions> Admit(const grpc::CallbackServerContext& context) const {
    if (door_.gate == nullptr) return Permissions();
    CAIRN_ASSIGN_OR_RETURN(net::Caller caller, door_.gate->Admit(context));
    return Permissions(std::move(caller), door_.chief);
  }

  // Whether the caller may make this request to `server`, which is the result of looking up the
  // request's shard.
  template <typename Request>
  absl::Status CheckAllowed(const grpc::CallbackServerContext& context, const Request& request,
                            const absl::StatusOr<Server*>& server) const {
    CAIRN_ASSIGN_OR_RETURN(const Permissions permissions, Admit(context));
    CAIRN_RETURN_IF_ERROR(server.status());
    return permissions.Check(request, **server);
  }

  // For calls that locate a shard: NOT_FOUND if this process does not have it.
  absl::StatusOr<Server*> Locate(const grpc::CallbackServerContext& context) const {
    const std::optional<int> shard = ShardOf(context);
    if (!shard.has_value()) return &shards_.own();
    Server* const server = shards_.Find(*shard);
    if (server == nullptr)
      return absl::NotFoundError(absl::StrCat("this process does not have ps/", *shard, "'s shard"));
    return server;
  }
  // For all other calls: UNAVAILABLE makes the client search for the shard's server again.
  absl::StatusOr<Server*> Find(const grpc::CallbackServerContext& context) const {
    const std::optional<int> shard = ShardOf(context);
    return shard.has_value() ? shards_.Serving(*shard) : &shards_.own();
  }

  HostedShards& shards_;
  const Door door_;
  std::atomic<int> sessions_{0};
};

}  // namespace

std::unique_ptr<grpc::Service> MakeService(HostedShards& shards, Door door) {
  return std::make_unique<Service>(shards, std::move(door));
}

}  // namespace cairn::ps
