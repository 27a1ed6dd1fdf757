// Building blocks of requests: sending parts of a flat buffer, receiving into one, and waiting for the end.
#pragma once

#include <chrono>
#include <memory>
#include <optional>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "client/transport/server_session.h"
#include "common/core/clock.h"
#include "common/core/mutex.h"
#include "common/net/cluster/placement.h"

namespace cairn::client {

// The encoding of numbers on the wire.
struct Wire {
  v1::Encoding encoding = v1::ENCODING_FLOAT32;
  // With a 16-bit encoding: memory for the encoded numbers, one float for each element of the server's arena.
  // It must stay unchanged for as long as the buffer that is sent.
  absl::Span<float> room{};
};

// Sends the extents (sorted by server_offset) of `buffer` as chunks. Extents that are adjacent in the
// server's arena share a chunk of up to kMaxPayloadFloats elements.
void SendExtents(ServerSession& session, uint64_t request_id, absl::Span<const net::Extent> extents,
                 absl::Span<const float> buffer, const Wire& wire = {});

// Sends elements from `at.offset` on of the state of a table beside the variables, as chunks. Their memory must stay
// unchanged, as ServerSession::SendChunk() requires.
struct TablePlace {
  int table = 0;  // from 1
  int64_t offset = 0;
};
void SendTableState(ServerSession& session, uint64_t request_id, TablePlace at,
                    absl::Span<const float> elements);

// Returns a sink that scatters received chunks into `buffer` according to `extents` (sorted by server_offset)
// and skips elements of the arena outside of them. Both must outlive the request. INVALID_ARGUMENT for a
// payload that is not a whole number of elements, and for a chunk of a table beside the variables.
std::unique_ptr<ChunkSink> ReceiveInto(absl::Span<const net::Extent> extents, absl::Span<float> buffer);

// Waits for the end of one request. Must outlive the request, or the session that the callback was passed to.
class PendingDone {
 public:
  ServerSession::OnDone Callback() {
    return [this](absl::StatusOr<v1::Done> result) {
      MutexLock lock(mutex_);
      result_ = std::move(result);
      changed_.NotifyAll();
    };
  }
  // Waits for the answer, and receives it in this thread if `session`, which has the request, allows that.
  // DEADLINE_EXCEEDED if it has not arrived in time.
  absl::StatusOr<v1::Done> Wait(ServerSession& session, std::chrono::milliseconds timeout);
  absl::StatusOr<v1::Done> Wait(ServerSession& session, std::chrono::milliseconds timeout,
                                const StopCheck& stopped);

 private:
  // Returns whether the answer has arrived.
  bool WaitUntil(ServerSession& session, TimePoint deadline);

  Mutex mutex_;
  CondVar changed_;
  std::optional<absl::StatusOr<v1::Done>> result_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cairn::client
