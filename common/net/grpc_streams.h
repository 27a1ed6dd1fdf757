// The two ends of a bidirectional stream, over gRPC's callback API: messages are written in the order in
// which they are given, or by their rank (Outbox), one at a time, and read one at a time; each end ends once.
// What is special about a stream is in what derives.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "common/core/clock.h"
#include "common/core/mutex.h"
#include "common/net/grpc_util.h"
#include "common/net/outbox.h"
#include "grpcpp/client_context.h"
#include "grpcpp/support/client_callback.h"
#include "grpcpp/support/server_callback.h"

namespace cairn::net {

// The calling end. A derived constructor prepares the call with context() and reactor(), then calls Open();
// its destructor calls Cancel() and AwaitEnd(), as gRPC calls it until then.
template <typename Out, typename In>
class ClientStream : private grpc::ClientBidiReactor<Out, In> {
 public:
  // Ends the stream soon; `why` is what OnEnd() gets, unless there was a reason before. Any thread.
  void Cancel(absl::Status why = absl::OkStatus()) ABSL_LOCKS_EXCLUDED(mutex_) {
    {
      MutexLock lock(mutex_);
      why_.Update(why);
    }
    context_.TryCancel();
  }
  // No limit: a cancelled call always ends, and the memory that was sent must not be given back before.
  void AwaitEnd() ABSL_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(mutex_);
    while (!done_) changed_.Wait(mutex_);
  }
  // True when it has ended.
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
    this->AddHold();  // for writes that come from other threads, until the last read
    this->StartRead(&incoming_);
    this->StartCall();
  }

  // Any thread, does not block. After the end nothing is written.
  void Write(Out message, std::optional<int64_t> rank = std::nullopt) ABSL_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(mutex_);
    Push(std::move(message), rank);
  }
  // One directly after another.
  void Write(std::vector<Out> messages) ABSL_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(mutex_);
    for (Out& message : messages) Push(std::move(message), std::nullopt);
  }

 private:
  // An error ends the stream, and is what OnEnd() gets.
  virtual absl::Status OnMessage(const In& message) = 0;
  // The last call: what ended the stream here, else the other end's status.
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
  bool closing_ ABSL_GUARDED_BY(mutex_) = false;  // nothing is written any more
  bool done_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status why_ ABSL_GUARDED_BY(mutex_);
};

// `status`, but where the other end has gone without an error of its own: UNAVAILABLE, saying `gone`.
inline absl::Status EndOfStream(const absl::Status& status, absl::string_view gone) {
  return status.ok() || absl::IsCancelled(status) ? absl::UnavailableError(gone) : status;
}

// The called end. gRPC calls it, one callback of a kind at a time, until OnDone(), which what derives
// defines.
template <typename In, typename Out>
class ServerStream : public grpc::ServerBidiReactor<In, Out> {
 public:
  void Open() { this->StartRead(&incoming_); }

  // Any thread, does not block. Who does not take what is written is not read (Outbox::Rests()).
  void Write(Out message, std::optional<int64_t> rank = std::nullopt) ABSL_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(mutex_);
    if (ending_) return;
    if (outgoing_.Push(std::move(message), rank)) this->StartWrite(&outgoing_.front());
  }
  // Nothing is written after this; the stream finishes when the message under way has gone. Any thread.
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
    if (!outgoing_.Rests()) this->StartRead(&incoming_);
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
    if (outgoing_.Wakes()) this->StartRead(&incoming_);
  }
  void OnCancel() final { End(grpc::Status::CANCELLED); }

 protected:
  // In OnDone(): what End() was told first.
  absl::Status ended_with() ABSL_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(mutex_);
    return FromGrpc(status_);
  }

 private:
  // An error ends the stream; the other end is told.
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

// The server's end of a stream that ends at once.
template <typename In, typename Out>
class RefusedStream final : public grpc::ServerBidiReactor<In, Out> {
 public:
  explicit RefusedStream(const absl::Status& reason) { this->Finish(ToGrpc(reason)); }
  void OnDone() override { delete this; }
};

}  // namespace cairn::net
