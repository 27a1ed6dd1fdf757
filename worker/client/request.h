// The pieces that requests are made of: sending parts of a flat buffer, receiving into one, waiting for the
// end.
#pragma once

#include <chrono>
#include <memory>
#include <optional>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/core/mutex.h"
#include "common/net/placement.h"
#include "worker/client/server_session.h"

namespace cairn::client {

// How numbers travel.
struct Wire {
  v1::Encoding encoding = v1::ENCODING_FLOAT32;
  // Of 16 bits: as many floats as the server's arena has, for what is on its way. Like a buffer that is sent
  // from.
  absl::Span<float> room{};
};

// Sends the extents (by rising server_offset) of `buffer` as chunks: extents that touch in the server's arena
// share one, of up to kMaxPayloadFloats elements.
void SendExtents(ServerSession& session, uint64_t request_id, absl::Span<const net::Extent> extents,
                 absl::Span<const float> buffer, const Wire& wire = {});

// Scatters received chunks into `buffer` by `extents` (by rising server_offset); elements of the arena
// outside them are skipped. Both must outlive the request. INVALID_ARGUMENT for a payload that is no whole
// number of elements.
std::unique_ptr<ChunkSink> ReceiveInto(absl::Span<const net::Extent> extents, absl::Span<float> buffer);

// The end of one request, to wait for. Must outlive the session it is given to, or the request.
class PendingDone {
 public:
  ServerSession::OnDone Callback() {
    return [this](absl::StatusOr<v1::Done> result) {
      MutexLock lock(mutex_);
      result_ = std::move(result);
      changed_.NotifyAll();
    };
  }
  // Receives, where `session`, which has the request, allows it. DEADLINE_EXCEEDED when the end has not come.
  absl::StatusOr<v1::Done> Wait(ServerSession& session, std::chrono::milliseconds timeout);

 private:
  Mutex mutex_;
  CondVar changed_;
  std::optional<absl::StatusOr<v1::Done>> result_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cairn::client
