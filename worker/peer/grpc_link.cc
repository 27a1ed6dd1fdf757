#include "worker/peer/grpc_link.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "cairn/v1/all_reduce.grpc.pb.h"
#include "common/core/mutex.h"
#include "common/core/status.h"
#include "common/net/grpc/grpc_streams.h"
#include "common/net/grpc/grpc_util.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/support/server_callback.h"

namespace cairn::allreduce {
namespace {

absl::Status Deliver(const grpc::ByteBuffer& message, RingHandler& handler) {
  v1::RingHeader header;
  net::DecodedFrame frame;
  if (absl::Status status = frame.Decode(message, &header); !status.ok()) return status;
  return handler.OnFrame(header, frame.payload());
}

absl::Status Gone(const absl::Status& status) {
  return net::EndOfStream(status, "it has closed the stream");
}

// The end that opened the stream.
class OutgoingStream final : public RingStream, net::ClientStream<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  OutgoingStream(grpc::GenericStub& stub, RingHandler& handler) : handler_(handler) {
    stub.PrepareBidiStreamingCall(&context(), "/cairn.v1.AllReduce/Pass", grpc::StubOptions(), reactor());
    Open();
  }
  ~OutgoingStream() override {
    Cancel();
    AwaitEnd();
  }

  void Send(const v1::RingHeader& header, net::FloatSpans payload,
            const std::shared_ptr<const void>& owner) override {
    Write(net::EncodeFrame(header, payload, owner));
  }
  void End(const absl::Status& why) override { Cancel(why); }

 private:
  absl::Status OnMessage(const grpc::ByteBuffer& message) override { return Deliver(message, handler_); }
  void OnEnd(const absl::Status& status) override { handler_.OnClosed(Gone(status)); }

  RingHandler& handler_;
};

// PERMISSION_DENIED if `caller` is not the worker that it claims to be.
absl::Status CheckIs(const net::Caller& caller, const RingDoor& door, int worker) {
  if (!caller.named()) return absl::OkStatus();
  const std::string task = door.task_of(worker);
  if (caller.Is(task)) return absl::OkStatus();
  return absl::PermissionDeniedError(
      absl::StrCat("the certificate of ", caller.ToString(), " may not send gradients as ", task));
}

absl::StatusOr<net::Caller> Admit(const RingDoor& door, const grpc::CallbackServerContext& context) {
  return door.gate == nullptr ? net::Caller::Anyone() : door.gate->Admit(context);
}

class GrpcPeer final : public RingPeer {
 public:
  GrpcPeer(const std::string& address, const net::Credentials& credentials)
      : channel_(net::MakeChannel(address, credentials)),
        stub_(v1::AllReduce::NewStub(channel_)),
        generic_stub_(channel_) {}

  absl::Status Greet(const v1::GreetRequest& request, v1::GreetResponse* response,
                     std::chrono::milliseconds timeout) override {
    grpc::ClientContext context;
    net::SetDeadline(context, timeout);
    absl::Status status = net::FromGrpc(stub_->Greet(&context, request, response));
    // This worker cancels no call, but a neighbour that ends cancels the calls that it has not answered.
    if (absl::IsCancelled(status)) status = absl::UnavailableError("the other worker ended the call");
    return status;
  }
  std::unique_ptr<RingStream> Open(const v1::GreetResponse&, RingHandler& handler) override {
    return std::make_unique<OutgoingStream>(generic_stub_, handler);
  }

 private:
  const std::shared_ptr<grpc::Channel> channel_;
  const std::unique_ptr<v1::AllReduce::Stub> stub_;
  grpc::GenericStub generic_stub_;
};

// The end that accepted the stream. Sends the frames that its handler sends back.
class IncomingReactor;
class BackStream final : public RingStream {
 public:
  explicit BackStream(IncomingReactor* reactor) : reactor_(reactor) {}
  void Send(const v1::RingHeader& header, net::FloatSpans payload,
            const std::shared_ptr<const void>& owner) override;
  void End(const absl::Status& why) override;
  // The reactor is about to be destroyed.
  void Detach() {
    MutexLock lock(mutex_);
    reactor_ = nullptr;
  }

 private:
  Mutex mutex_;
  IncomingReactor* reactor_ ABSL_GUARDED_BY(mutex_);
};

// Deletes itself in OnDone.
class IncomingReactor final : public net::ServerStream<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  IncomingReactor(RingHost& host, const RingDoor& door, net::Caller caller)
      : door_(door),
        caller_(std::move(caller)),
        back_(std::make_shared<BackStream>(this)),
        handler_(host.OnStream(back_)) {
    Open();
  }

  void OnDone() override {
    back_->Detach();
    handler_->OnClosed(Gone(ended_with()));
    delete this;
  }

 private:
  absl::Status OnMessage(const grpc::ByteBuffer& message) override {
    v1::RingHeader header;
    net::DecodedFrame frame;
    CAIRN_RETURN_IF_ERROR(frame.Decode(message, &header));
    if (header.has_hello()) CAIRN_RETURN_IF_ERROR(CheckIs(caller_, door_, header.hello().worker()));
    return handler_->OnFrame(header, frame.payload());
  }

  const RingDoor& door_;
  const net::Caller caller_;
  const std::shared_ptr<BackStream> back_;
  const std::shared_ptr<RingHandler> handler_;
};

void BackStream::Send(const v1::RingHeader& header, net::FloatSpans payload,
                      const std::shared_ptr<const void>& owner) {
  grpc::ByteBuffer message = net::EncodeFrame(header, payload, owner);
  MutexLock lock(mutex_);
  if (reactor_ != nullptr) reactor_->Write(std::move(message));
}

void BackStream::End(const absl::Status& why) {
  MutexLock lock(mutex_);
  if (reactor_ != nullptr) reactor_->End(net::ToGrpc(why));
}

// Pass is served as raw bytes, because frames are parsed without copies.
class RingService final : public v1::AllReduce::WithRawCallbackMethod_Pass<
                              v1::AllReduce::WithCallbackMethod_Greet<v1::AllReduce::Service>> {
 public:
  RingService(RingHost& host, RingDoor door) : host_(host), door_(std::move(door)) {}

  grpc::ServerUnaryReactor* Greet(grpc::CallbackServerContext* context, const v1::GreetRequest* request,
                                  v1::GreetResponse* response) override {
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    const auto caller = Admit(door_, *context);
    absl::Status status = caller.status();
    if (status.ok()) status = CheckIs(*caller, door_, request->from());
    if (status.ok()) status = host_.OnGreet(*request, response);
    reactor->Finish(net::ToGrpc(status));
    return reactor;
  }
  grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* Pass(
      grpc::CallbackServerContext* context) override {
    auto caller = Admit(door_, *context);
    if (!caller.ok()) return new net::RefusedStream<grpc::ByteBuffer, grpc::ByteBuffer>(caller.status());
    return new IncomingReactor(host_, door_, *std::move(caller));
  }

 private:
  RingHost& host_;
  const RingDoor door_;
};

}  // namespace

std::unique_ptr<RingPeer> MakeGrpcPeer(const std::string& address, const net::Credentials& credentials) {
  return std::make_unique<GrpcPeer>(address, credentials);
}

std::unique_ptr<grpc::Service> MakeRingService(RingHost& host, RingDoor door) {
  return std::make_unique<RingService>(host, std::move(door));
}

}  // namespace cairn::allreduce
