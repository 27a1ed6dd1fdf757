// Requests to one server over its stream: numbers them, hands each its answers.
//
// Thread-safe. Callbacks run on the transport's thread, or on the one in ReceiveUntil(), and must not block;
// after a request's done, or after the session's destructor, none of its callbacks is called, and nothing is
// written where its values go.
#pragma once

#include <cstdint>
#include <map>
#include <memory>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/core/mutex.h"
#include "worker/client/transport.h"

namespace cairn::client {

// Takes an answer's values, chunks at their offsets of the server's arena. Called by the transport's thread.
class ChunkSink {
 public:
  virtual ~ChunkSink() = default;
  virtual absl::Status Add(const v1::Chunk& chunk, net::Payload payload) = 0;
  // Where a chunk of `count` float32 elements may be put, so that Add() need not copy it: it is added next,
  // or never, when the stream ends. Empty: anywhere.
  virtual absl::Span<float> PlaceFor(const v1::Chunk& /*chunk*/, int64_t /*count*/) { return {}; }
};

class ServerSession final : private FrameHandler {
 public:
  // The answer's end: the server's `done` when its code is OK, else the failure it carries; or the stream's
  // end (UNAVAILABLE in general).
  using OnDone = absl::AnyInvocable<void(absl::StatusOr<v1::Done>)>;

  // `stub` must outlive the session.
  explicit ServerSession(ServerStub& stub);
  ~ServerSession() override;

  // Opens a request; `header`'s request_id is set here. Returns the id, for its chunks and its end (reads
  // need neither), or the reason why the stream has ended; then `on_done` is not called. `values`: null where
  // none are asked for.
  absl::StatusOr<uint64_t> Begin(v1::ClientHeader header, std::unique_ptr<ChunkSink> values, OnDone on_done)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // `payload`: runs that together are what `chunk` says, at most 1 MiB. Their memory stays unchanged as
  // FrameStream::Send() says.
  void SendChunk(uint64_t request_id, const v1::Chunk& chunk, net::FloatSpans payload);
  void SendEnd(uint64_t request_id);
  // Of FrameStream.
  bool ReceiveUntil(absl::FunctionRef<bool()> enough, TimePoint deadline) {
    return stream_->ReceiveUntil(enough, deadline);
  }
  void Nudge() { stream_->Nudge(); }

  // Not OK once the stream has ended: make another session.
  absl::Status status() const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  struct Request {
    std::unique_ptr<ChunkSink> values;  // until the answer's end
    OnDone on_done;
  };
  absl::Span<char> PlaceFor(const v1::ServerHeader& header, size_t bytes) override;
  void OnFrame(const v1::ServerHeader& header, net::Payload payload) override;
  void OnClosed(const absl::Status& status) override;

  mutable Mutex mutex_;
  uint64_t last_id_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
  std::map<uint64_t, Request> requests_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<FrameStream> stream_;  // constant after construction; destroyed first
};

}  // namespace cairn::client
