#include "client/transport/grpc_transport.h"

#include <atomic>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cairn/v1/parameter_server.grpc.pb.h"  // how messages are serialized
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

class GrpcStreams final : public StreamFactory {
 public:
  GrpcStreams(const std::shared_ptr<grpc::Channel>& channel, std::string shard)
      : shard_(std::move(shard)), stub_(channel) {}

  std::unique_ptr<FrameStream> Open(FrameHandler& handler, const StopCheck&) override {
    return std::make_unique<GrpcStream>(stub_, shard_, handler);
  }

 private:
  const std::string shard_;
  grpc::GenericStub stub_;
};

class GrpcControl final : public ControlStub {
 public:
  GrpcControl(const std::shared_ptr<grpc::Channel>& channel, std::string shard)
      : shard_(std::move(shard)), stub_(channel) {}

  absl::Status Call(const google::protobuf::MethodDescriptor& method,
                    const google::protobuf::Message& request, google::protobuf::Message* response,
                    Timeout timeout, const StopCheck& stopped) override {
    grpc::ClientContext context;
    net::SetDeadline(context, timeout);
    if (!shard_.empty()) context.AddMetadata(net::kShardMetadata, shard_);
    grpc::CompletionQueue queue;
    grpc::Status ended;
    const auto call = stub_.PrepareUnaryCall(
        &context, absl::StrCat("/", method.service()->full_name(), "/", method.name()), request, &queue);
    call->StartCall();
    call->Finish(response, &ended, nullptr);
    queue.Shutdown();
    const bool cancelled = Await(queue, context, stopped);
    absl::Status status = net::FromGrpc(ended);
    if (!absl::IsCancelled(status)) return status;
    if (cancelled) return absl::CancelledError("stopped");
    // A server that stops cancels the calls that it has not answered.
    return absl::UnavailableError("the server ended the call");
  }

 private:
  // Waits until the only call of the queue has ended. Returns whether it was cancelled here.
  static bool Await(grpc::CompletionQueue& queue, grpc::ClientContext& context, const StopCheck& stopped) {
    void* tag = nullptr;
    bool ok = false;
    bool cancelled = false;
    for (;;) {
      const auto deadline = stopped && !cancelled ? std::chrono::system_clock::now() + kStopCheckEvery
                                                  : std::chrono::system_clock::time_point::max();
      const auto next = queue.AsyncNext(&tag, &ok, deadline);
      if (next == grpc::CompletionQueue::SHUTDOWN) return cancelled;
      if (next == grpc::CompletionQueue::TIMEOUT && stopped()) {
        cancelled = true;
        context.TryCancel();
      }
    }
  }

  const std::string shard_;  // empty: the called server's own shard
  grpc::TemplatedGenericStub<google::protobuf::MessageLite, google::protobuf::MessageLite> stub_;
};

}  // namespace

std::unique_ptr<ServerStub> MakeGrpcStub(const std::string& address, const net::Credentials& credentials,
                                         std::optional<int> shard) {
  const std::shared_ptr<grpc::Channel> channel = net::MakeChannel(address, credentials);
  const std::string name = shard.has_value() ? absl::StrCat(*shard) : "";
  return std::make_unique<ServerStub>(
      ServerStub::Parts{.address = address,
                        .control = std::make_unique<GrpcControl>(channel, name),
                        .streams = std::make_unique<GrpcStreams>(channel, name)});
}

}  // namespace cairn::client
