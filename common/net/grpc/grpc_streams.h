// Base classes for the two ends of a bidirectional stream, over gRPC's callback API. Messages are written one
// at a time, in the order in which they are given or by their rank (Outbox), and read one at a time. Derived
// classes handle the messages.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "common/core/clock.h"
#include "common/core/mutex.h"
#include "common/net/grpc/grpc_util.h"
#include "common/net/wire/outbox.h"
#include "grpcpp/client_context.h"
#include "grpcpp/support/client_callback.h"
#include "grpcpp/support/server_callback.h"

namespace cairn::net {

// The calling end. A derived constructor prepares the call with context() and reactor() and then calls
// Open(). A derived destructor calls Cancel() and AwaitEnd(), because gRPC calls the object until AwaitEnd()
// returns.
template <typename Out, typename In>
class ClientStream : private grpc::ClientBidiReactor<Out, In> {
 public:
  // Ends the stream soon. OnEnd() receives `why`, unless there was an earlier reason. Any thread.
  void Cancel(absl::Status why = absl::OkStatus()) ABSL_LOCKS_EXCLUDED(mutex_) {
    {
      MutexLock lock(mutex_);
      why_.Update(why);
    }
    context_.TryCancel();
  }
  // Waits without a deadline: a cancelled call always ends, and the memory that is being sent must not be
  // released before that.
  void AwaitEnd() ABSL_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(mutex_);
    while (!done_) changed_.Wait(mutex_);
  }
  // Waits until the end of the stream or `deadline`. Returns whether the stream has ended.
  bool AwaitEnd(TimePoint deadline) ABSL_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(mutex_);
    while (!done_ && changed_.WaitUntil(mutex_, deadline)) {
    }
    return done_;
  }

 protected:
  ~ClientStream() = default;

  grpc::ClientContext& context() { return context_; }
  grpc::ClientBidiReactor<Out, In>* reactor() { return this; }
  void Open() {
    this->AddHold();  // for writes by other threads, until the last read
    this->StartRead(&incoming_);
    this->StartCall();
  }

  // Any thread, does not block. Messages are dropped after the end of the stream.
  void Write(Out message, std::optional<int64_t> rank = std::nullopt) ABSL_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(mutex_);
    Push(std::move(message), rank);
  }
  // Writes the messages without any other message between them.
  void Write(std::vector<Out> messages) ABSL_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(mutex_);
    for (Out& message : messages) Push(std::move(message), std::nullopt);
  }

 private:
  // An error ends the stream; OnEnd() receives it.
  virtual absl::Status OnMessage(const In& message) = 0;
  // The last callback. `status`: the error with which this end cancelled the stream, if there is one;
  // otherwise the status from the other end.
  virtual void OnEnd(const absl::Status& status) = 0;

  void Push(Out message, std::optional<int64_t> rank) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (closing_) return;
    if (outgoing_.Push(std::move(message), rank)) this->StartWrite(&outgoing_.front());
  }
  void OnReadDone(bool ok) final {
    if (ok) {
      if (absl::Status status = OnMessage(incoming_); !status.ok()) Cancel(std::move(status));
      this->StartRead(&incoming_);
      return;
    }
    {
      MutexLock lock(mutex_);
      if (std::exchange(closing_, true)) return;
    }
    this->RemoveHold();
  }
  void OnWriteDone(bool ok) final {
    MutexLock lock(mutex_);
    if (outgoing_.Pop() && ok && !closing_) this->StartWrite(&outgoing_.front());
  }
  void OnDone(const grpc::Status& status) final {
    absl::Status result = FromGrpc(status);
    {
      MutexLock lock(mutex_);
      if (!why_.ok()) result = why_;
    }
    OnEnd(result);
    MutexLock lock(mutex_);
    outgoing_.Clear();
    done_ = true;
    changed_.NotifyAll();
  }

  grpc::ClientContext context_;
  In incoming_;

  Mutex mutex_;
  CondVar changed_;
  Outbox<Out> outgoing_ ABSL_GUARDED_BY(mutex_);
  bool closing_ ABSL_GUARDED_BY(mutex_) = false;  // no more messages are written
  bool done_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status why_ ABSL_GUARDED_BY(mutex_);
};

// Returns `status`, or UNAVAILABLE with the text `gone` if the other end is gone without an error.
inline absl::Status EndOfStream(const absl::Status& status, absl::string_view gone) {
  return status.ok() || absl::IsCancelled(status) ? absl::UnavailableError(gone) : status;
}

// The called end. gRPC calls it, one callback of a kind at a time, until OnDone(), which derived classes
// define.
template <typename In, typename Out>
class ServerStream : public grpc::ServerBidiReactor<In, Out> {
 public:
  void Open() { this->StartRead(&incoming_); }

  // Any thread, does not block. While the peer does not take what is written, its requests are not read
  // (Outbox::Backpressured()).
  void Write(Out message, std::optional<int64_t> rank = std::nullopt) ABSL_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(mutex_);
    if (ending_) return;
    if (outgoing_.Push(std::move(message), rank)) this->StartWrite(&outgoing_.front());
  }
  // Drops later messages and finishes the stream once the current one has been written. Any thread.
  void End(grpc::Status status) ABSL_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(mutex_);
    if (!std::exchange(ending_, true)) status_ = std::move(status);
    outgoing_.DropRest();
    if (outgoing_.empty()) FinishOnce();
  }

  void OnReadDone(bool ok) final {
    if (!ok) {
      End(grpc::Status::OK);
      return;
    }
    if (const absl::Status status = OnMessage(incoming_); !status.ok()) {
      End(ToGrpc(status));
      return;
    }
    MutexLock lock(mutex_);
    if (!outgoing_.Backpressured()) this->StartRead(&incoming_);
  }
  void OnWriteDone(bool ok) final {
    MutexLock lock(mutex_);
    const bool more = outgoing_.Pop();
    if (!ok) ending_ = true;
    if (ending_) {
      outgoing_.Clear();
      FinishOnce();
      return;
    }
    if (more) this->StartWrite(&outgoing_.front());
    if (outgoing_.ShouldResume()) this->StartRead(&incoming_);
  }
  void OnCancel() final { End(grpc::Status::CANCELLED); }

 protected:
  // For OnDone(): the status given to the first call of End().
  absl::Status ended_with() ABSL_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(mutex_);
    return FromGrpc(status_);
  }

 private:
  // An error ends the stream; the other end receives it.
  virtual absl::Status OnMessage(const In& message) = 0;

  void FinishOnce() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (!std::exchange(finished_, true)) this->Finish(status_);
  }

  In incoming_;
  Mutex mutex_;
  Outbox<Out> outgoing_ ABSL_GUARDED_BY(mutex_);
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
  grpc::Status status_ ABSL_GUARDED_BY(mutex_);
};

// The called end of a stream that ends at once, with an error.
template <typename In, typename Out>
class RefusedStream final : public grpc::ServerBidiReactor<In, Out> {
 public:
  explicit RefusedStream(const absl::Status& reason) { this->Finish(ToGrpc(reason)); }
  void OnDone() override { delete this; }
};

}  // namespace cairn::net
