#include "worker/allreduce/grpc_link.h"

#include <deque>
#include <utility>

#include "cairn/v1/all_reduce.grpc.pb.h"
#include "common/core/mutex.h"
#include "common/net/grpc_util.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/support/server_callback.h"

namespace cairn::allreduce {
namespace {

// Frames on their way out; the front is being written. Not thread-safe.
class Queue {
 public:
  // True when nothing was being written: the caller writes front().
  bool Push(grpc::ByteBuffer message) {
    messages_.push_back(std::move(message));
    return messages_.size() == 1;
  }
  // The front has been written. True when there is another.
  bool Pop() {
    messages_.pop_front();
    return !messages_.empty();
  }
  // All but what is being written.
  void DropRest() {
    if (messages_.size() > 1) messages_.erase(messages_.begin() + 1, messages_.end());
  }
  void Clear() { messages_.clear(); }
  bool empty() const { return messages_.empty(); }
  const grpc::ByteBuffer& front() const { return messages_.front(); }

 private:
  std::deque<grpc::ByteBuffer> messages_;
};

absl::Status Deliver(const grpc::ByteBuffer& message, RingHandler& handler) {
  v1::RingHeader header;
  net::DecodedFrame frame;
  if (absl::Status status = frame.Decode(message, &header); !status.ok()) return status;
  return handler.OnFrame(header, frame.payload());
}

// The calling end.
class OutgoingStream final : public RingStream, grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  OutgoingStream(grpc::GenericStub& stub, RingHandler& handler) : handler_(handler) {
    stub.PrepareBidiStreamingCall(&context_, "/cairn.v1.AllReduce/Pass", grpc::StubOptions(), this);
    AddHold();  // for writes that come from other threads, until Close()
    StartRead(&incoming_);
    StartCall();
  }
  ~OutgoingStream() override {
    context_.TryCancel();
    MutexLock lock(mutex_);
    // No limit: a cancelled call always ends.
    while (!done_) changed_.Wait(mutex_);
  }

  void Send(const v1::RingHeader& header, net::FloatSpans payload,
            const std::shared_ptr<const void>& owner) override {
    grpc::ByteBuffer message = net::EncodeFrame(header, payload, owner);
    MutexLock lock(mutex_);
    if (closing_) return;
    if (outgoing_.Push(std::move(message))) StartWrite(&outgoing_.front());
  }
  void End(const absl::Status& why) override {
    {
      MutexLock lock(mutex_);
      if (why_.ok()) why_ = why;
    }
    context_.TryCancel();
  }

 private:
  void OnReadDone(bool ok) override {
    if (!ok) {
      Close();
      return;
    }
    if (const absl::Status status = Deliver(incoming_, handler_); !status.ok()) End(status);
    StartRead(&incoming_);
  }
  void OnWriteDone(bool ok) override {
    MutexLock lock(mutex_);
    if (outgoing_.Pop() && ok && !closing_) StartWrite(&outgoing_.front());
  }
  void OnDone(const grpc::Status& status) override {
    absl::Status result = net::FromGrpc(status);
    {
      MutexLock lock(mutex_);
      if (!why_.ok()) result = why_;
    }
    if (result.ok() || absl::IsCancelled(result)) result = absl::UnavailableError("it has closed the stream");
    handler_.OnClosed(result);
    MutexLock lock(mutex_);
    outgoing_.Clear();
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

  RingHandler& handler_;
  grpc::ClientContext context_;
  grpc::ByteBuffer incoming_;

  Mutex mutex_;
  CondVar changed_;
  Queue outgoing_ ABSL_GUARDED_BY(mutex_);
  bool closing_ ABSL_GUARDED_BY(mutex_) = false;  // nothing is written any more
  bool done_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status why_ ABSL_GUARDED_BY(mutex_);  // this end ended it
};

class GrpcPeer final : public RingPeer {
 public:
  GrpcPeer(const std::string& address, const std::shared_ptr<grpc::ChannelCredentials>& credentials)
      : channel_(net::MakeChannel(address, credentials)),
        stub_(v1::AllReduce::NewStub(channel_)),
        generic_stub_(channel_) {}

  absl::Status Greet(const v1::GreetRequest& request, v1::GreetResponse* response,
                     std::chrono::milliseconds timeout) override {
    grpc::ClientContext context;
    net::SetDeadline(context, timeout);
    absl::Status status = net::FromGrpc(stub_->Greet(&context, request, response));
    // We cancel no call, but a worker that ends cancels those it has not answered.
    if (absl::IsCancelled(status)) status = absl::UnavailableError("it ended the call");
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

// The called end: what its handler sends back.
class IncomingReactor;
class BackStream final : public RingStream {
 public:
  explicit BackStream(IncomingReactor* reactor) : reactor_(reactor) {}
  void Send(const v1::RingHeader& header, net::FloatSpans payload,
            const std::shared_ptr<const void>& owner) override;
  void End(const absl::Status& why) override;
  // The reactor goes away.
  void Detach() {
    MutexLock lock(mutex_);
    reactor_ = nullptr;
  }

 private:
  Mutex mutex_;
  IncomingReactor* reactor_ ABSL_GUARDED_BY(mutex_);
};

// gRPC calls it, one callback of a kind at a time; it lives until OnDone.
class IncomingReactor final : public grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  explicit IncomingReactor(RingHost& host)
      : back_(std::make_shared<BackStream>(this)), handler_(host.OnStream(back_)) {
    StartRead(&incoming_);
  }

  void OnReadDone(bool ok) override {
    if (!ok) {
      End(grpc::Status::OK);
      return;
    }
    const absl::Status status = Deliver(incoming_, *handler_);
    if (!status.ok()) {
      End(net::ToGrpc(status));
      return;
    }
    StartRead(&incoming_);
  }
  void Send(grpc::ByteBuffer message) {
    MutexLock lock(mutex_);
    if (ending_) return;
    if (outgoing_.Push(std::move(message))) StartWrite(&outgoing_.front());
  }
  void OnWriteDone(bool ok) override {
    MutexLock lock(mutex_);
    const bool more = outgoing_.Pop();
    if (!ok) ending_ = true;
    if (ending_) {
      outgoing_.Clear();
      FinishOnce();
    } else if (more) {
      StartWrite(&outgoing_.front());
    }
  }
  void OnCancel() override { End(grpc::Status::CANCELLED); }
  // No frame is sent after this; the stream finishes when the one under way has gone.
  void End(grpc::Status status) {
    MutexLock lock(mutex_);
    if (!std::exchange(ending_, true)) status_ = std::move(status);
    outgoing_.DropRest();
    if (outgoing_.empty()) FinishOnce();
  }
  void OnDone() override {
    back_->Detach();
    absl::Status status;
    {
      MutexLock lock(mutex_);
      status = net::FromGrpc(status_);
    }
    if (status.ok() || absl::IsCancelled(status)) status = absl::UnavailableError("it has closed the stream");
    handler_->OnClosed(status);
    delete this;
  }

 private:
  void FinishOnce() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (!std::exchange(finished_, true)) Finish(status_);
  }

  const std::shared_ptr<BackStream> back_;
  const std::shared_ptr<RingHandler> handler_;
  grpc::ByteBuffer incoming_;

  Mutex mutex_;
  Queue outgoing_ ABSL_GUARDED_BY(mutex_);
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
  grpc::Status status_ ABSL_GUARDED_BY(mutex_);
};

void BackStream::Send(const v1::RingHeader& header, net::FloatSpans payload,
                      const std::shared_ptr<const void>& owner) {
  grpc::ByteBuffer message = net::EncodeFrame(header, payload, owner);
  MutexLock lock(mutex_);
  if (reactor_ != nullptr) reactor_->Send(std::move(message));
}

void BackStream::End(const absl::Status& why) {
  MutexLock lock(mutex_);
  if (reactor_ != nullptr) reactor_->End(net::ToGrpc(why));
}

// Pass is served as raw bytes, because frames are taken apart without copies.
class RingService final
    : public v1::AllReduce::WithRawCallbackMethod_Pass<v1::AllReduce::WithCallbackMethod_Greet<v1::AllReduce::Service>> {
 public:
  explicit RingService(RingHost& host) : host_(host) {}

  grpc::ServerUnaryReactor* Greet(grpc::CallbackServerContext* context, const v1::GreetRequest* request,
                                  v1::GreetResponse* response) override {
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    reactor->Finish(net::ToGrpc(host_.OnGreet(*request, response)));
    return reactor;
  }
  grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* Pass(grpc::CallbackServerContext*) override {
    return new IncomingReactor(host_);
  }

 private:
  RingHost& host_;
};

}  // namespace

std::unique_ptr<RingPeer> MakeGrpcPeer(const std::string& address,
                                       const std::shared_ptr<grpc::ChannelCredentials>& credentials) {
  return std::make_unique<GrpcPeer>(address, credentials);
}

std::unique_ptr<grpc::Service> MakeRingService(RingHost& host) {
  return std::make_unique<RingService>(host);
}

}  // namespace cairn::allreduce
