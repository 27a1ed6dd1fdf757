// Requests to one server over its stream: numbers them and passes each answer to its request.
//
// Thread-safe. Callbacks run on a thread of the transport, or on the thread in ReceiveUntil(), and must not
// block. After a request's OnDone, or after the session's destructor, none of its callbacks is called and
// nothing is written to the memory for its values.
#pragma once

#include <cstdint>
#include <map>
#include <memory>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/transport/transport.h"
#include "common/core/mutex.h"

namespace cairn::client {

// Receives the values of an answer, as chunks with offsets in the server's arena, and its rows. Called by a
// thread of the transport.
class ChunkSink {
 public:
  virtual ~ChunkSink() = default;
  virtual absl::Status Add(const v1::Chunk& chunk, net::Payload payload) = 0;
  // Returns the memory in which a chunk of `count` float32 elements should be received, so that Add() need
  // not copy it; empty: any memory. The next call is Add() of this chunk, unless the stream ends.
  virtual absl::Span<float> DestinationFor(const v1::Chunk& /*chunk*/, int64_t /*count*/) { return {}; }
  // By default no rows are expected: INTERNAL.
  virtual absl::Status AddRows(const v1::Rows& /*rows*/, net::Payload /*payload*/) {
    return absl::InternalError("rows that were not requested");
  }
};

class ServerSession final : private FrameHandler {
 public:
  // Receives the end of an answer: the server's Done or, if the request failed, the error. The error is the
  // code in Done, an error of the ChunkSink, or the status of the ended stream (usually UNAVAILABLE).
  using OnDone = absl::AnyInvocable<void(absl::StatusOr<v1::Done>)>;

  // `streams` must outlive the session. `stopped`: as StreamFactory::Open() says.
  explicit ServerSession(StreamFactory& streams, const StopCheck& stopped = {});
  ~ServerSession() override;

  // Begins a request; sets `header`'s request_id. Returns the id for SendChunk(), SendRows() and SendEnd() (a
  // read of values uses none of them). If the stream has ended: returns the reason, and `on_done` is not
  // called. `values`: null if the request asks for none.
  absl::StatusOr<uint64_t> Begin(v1::ClientHeader header, std::unique_ptr<ChunkSink> values, OnDone on_done)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // `payload`: spans that together are the elements of `chunk`, at most 1 MiB. Their memory must stay
  // unchanged, as FrameStream::Send() requires.
  void SendChunk(uint64_t request_id, const v1::Chunk& chunk, net::FloatSpans payload);
  // As SendChunk(), for a frame of rows of at most 256 KiB.
  void SendRows(uint64_t request_id, const v1::Rows& rows, net::FloatSpans payload);
  void SendEnd(uint64_t request_id);
  // See FrameStream.
  bool ReceiveUntil(absl::FunctionRef<bool()> enough, TimePoint deadline) {
    return stream_->ReceiveUntil(enough, deadline);
  }
  void Nudge() { stream_->Nudge(); }

  // Not OK once the stream has ended; then make another session.
  absl::Status status() const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  struct Request {
    std::unique_ptr<ChunkSink> values;  // null when the answer has ended
    OnDone on_done;
  };
  absl::Span<char> BeginFrame(const v1::ServerHeader& header, size_t bytes) override;
  void CompleteFrame(net::Payload payload) override;
  void OnClosed(const absl::Status& status) override;

  mutable Mutex mutex_;
  uint64_t last_id_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
  // A request is added by any thread, and removed and used by the thread that receives only.
  std::map<uint64_t, Request> requests_ ABSL_GUARDED_BY(mutex_);
  // The frame that is being received; used by the thread that receives. Null request: it has failed here
  // before its last frame arrived.
  const v1::ServerHeader* frame_ = nullptr;
  Request* frame_request_ = nullptr;
  std::unique_ptr<FrameStream> stream_;  // constant after construction; destroyed first
};

}  // namespace cairn::client
