// Requests to one server over its stream: numbers them, hands each its answers.
//
// Thread-safe. Callbacks run on the transport's thread and must not block; after a request's done, or after
// the session's destructor, none of its callbacks is called.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/core/mutex.h"
#include "worker/client/transport.h"

namespace cairn::client {

class ServerSession final : private FrameHandler {
 public:
  // A chunk of values, at its offset of the server's arena.
  using OnChunk = std::function<absl::Status(const v1::Chunk& chunk, net::Payload payload)>;
  // The answer's end: the server's `done` when its code is OK, else the failure it carries; or the stream's
  // end (UNAVAILABLE in general).
  using OnDone = absl::AnyInvocable<void(absl::StatusOr<v1::Done>)>;

  // `stub` must outlive the session.
  explicit ServerSession(ServerStub& stub);
  ~ServerSession() override;

  // Opens a request; `header`'s request_id is set here. Returns the id, for its chunks and its end (reads
  // need neither), or the reason why the stream has ended; then neither callback is called.
  absl::StatusOr<uint64_t> Begin(v1::ClientHeader header, OnChunk on_chunk, OnDone on_done)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // `payload`: runs that together are what `chunk` says, at most 1 MiB. Their memory stays unchanged until
  // the request is done or the session destroyed.
  void SendChunk(uint64_t request_id, const v1::Chunk& chunk, net::FloatSpans payload);
  void SendEnd(uint64_t request_id);

  // Not OK once the stream has ended: make another session.
  absl::Status status() const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  struct Request {
    OnChunk on_chunk;
    OnDone on_done;
  };
  void OnFrame(const v1::ServerHeader& header, net::Payload payload) override;
  void OnClosed(const absl::Status& status) override;

  mutable Mutex mutex_;
  uint64_t last_id_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
  std::map<uint64_t, Request> requests_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<FrameStream> stream_;  // constant after construction; destroyed first
};

}  // namespace cairn::client
