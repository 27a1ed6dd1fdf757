#include "client/transport/grpc_transport.h"

#include <atomic>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cairn/v1/parameter_server.grpc.pb.h"
#include "common/core/status.h"
#include "common/net/grpc/grpc_streams.h"
#include "common/net/grpc/grpc_util.h"
#include "grpcpp/generic/generic_stub.h"

namespace cairn::client {
namespace {

// The stream's messages are raw bytes (net::EncodeFrame), so it goes through the generic stub.
class GrpcStream final : public FrameStream, net::ClientStream<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  GrpcStream(grpc::GenericStub& stub, const std::string& shard, FrameHandler& handler) : handler_(handler) {
    if (!shard.empty()) context().AddMetadata(net::kShardMetadata, shard);
    stub.PrepareBidiStreamingCall(&context(), "/cairn.v1.ParameterServer/Session", grpc::StubOptions(),
                                  reactor());
    Open();
  }
  ~GrpcStream() override {
    closed_by_us_ = true;
    Cancel();
    AwaitEnd();
  }

  void Send(const v1::ClientHeader& header, net::FloatSpans payload) override {
    // Values at lower offsets of a server's arena are needed sooner by the next forward pass.
    const auto rank = header.has_chunk() ? std::optional(header.chunk().offset()) : std::nullopt;
    Write(net::EncodeFrame(header, payload, nullptr), rank);
  }

 private:
  absl::Status OnMessage(const grpc::ByteBuffer& message) override {
    v1::ServerHeader header;
    net::DecodedFrame frame;
    CAIRN_RETURN_IF_ERROR(frame.Decode(message, &header));
    handler_.OnFrame(header, frame.payload());
    return absl::OkStatus();
  }
  void OnEnd(const absl::Status& status) override {
    handler_.OnClosed(closed_by_us_ ? absl::OkStatus()
                                    : net::EndOfStream(status, "the server closed the stream"));
  }

  FrameHandler& handler_;
  std::atomic<bool> closed_by_us_{false};
};

class GrpcStub final : public ServerStub {
 public:
  GrpcStub(const std::string& address, const net::Credentials& credentials, std::optional<int> shard)
      : address_(address),
        shard_(shard.has_value() ? absl::StrCat(*shard) : ""),
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
  absl::Status PlaceMarker(const v1::PlaceMarkerRequest& request, v1::PlaceMarkerResponse* response,
                           Timeout timeout) override {
    return Call(&v1::ParameterServer::Stub::PlaceMarker, request, response, timeout);
  }
  absl::Status ChangeConfig(const v1::ChangeConfigRequest& request, v1::ChangeConfigResponse* response,
                            Timeout timeout) override {
    return Call(&v1::ParameterServer::Stub::ChangeConfig, request, response, timeout);
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
    return std::make_unique<GrpcStream>(generic_stub_, shard_, handler);
  }
  std::string address() const override { return address_; }

 private:
  template <typename Request, typename Response>
  absl::Status Call(grpc::Status (v1::ParameterServer::Stub::*method)(grpc::ClientContext*, const Request&,
                                                                      Response*),
                    const Request& request, Response* response, Timeout timeout) {
    grpc::ClientContext context;
    net::SetDeadline(context, timeout);
    if (!shard_.empty()) context.AddMetadata(net::kShardMetadata, shard_);
    absl::Status status = net::FromGrpc((stub_.get()->*method)(&context, request, response));
    // The client cancels no call, but a server that stops cancels the calls that it has not answered.
    if (absl::IsCancelled(status)) status = absl::UnavailableError("the server ended the call");
    return status;
  }

  const std::string address_;
  const std::string shard_;  // empty: the called server's own shard
  const std::shared_ptr<grpc::Channel> channel_;
  const std::unique_ptr<v1::ParameterServer::Stub> stub_;
  grpc::GenericStub generic_stub_;
};

}  // namespace

std::unique_ptr<ServerStub> MakeGrpcStub(const std::string& address, const net::Credentials& credentials,
                                         std::optional<int> shard) {
  return std::make_unique<GrpcStub>(address, credentials, shard);
}

}  // namespace cairn::client
