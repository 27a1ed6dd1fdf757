// The user of a DataStream: receives its messages.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/net/data_channel/stream/stream_options.h"
#include "common/net/wire/frame.h"

namespace cairn::net {

// Called by the stream's thread, or by the thread that receives in its place, one call at a time; must not
// block.
class DataReceiver {
 public:
  virtual ~DataReceiver() = default;
  // The server's end: called once, before the first message, with the client's StreamOptions::target. A status
  // other than OK refuses the client.
  virtual absl::Status OnHandshake(const StreamTarget& /*target*/) { return absl::OkStatus(); }
  // Each message is one call of Begin(), then one of Complete(), unless the stream ends in between. A status
  // other than OK from either ends the stream and is sent to the other end.
  //
  // `header` is valid during the call. `bytes`: the size of the payload, if it has yet to arrive on the
  // socket, else 0. Returns the memory in which to receive those bytes, to save a copy; empty: any memory.
  virtual absl::StatusOr<absl::Span<char>> Begin(absl::Span<const char> header, size_t bytes) = 0;
  // `payload` is valid during the call. It is in the memory that Begin() returned, if that had `bytes` bytes.
  virtual absl::Status Complete(Payload payload) = 0;
  // Whether the other end may be silent because it waits for an answer. If so, StreamOptions::idle_limit does
  // not apply.
  virtual bool OwesAnswer() { return false; }
  // The last call, by the stream's thread. `status` is the reason why the stream has ended: CANCELLED if this
  // end closed it, UNAVAILABLE if the other end closed it or is gone, or the status that the other end sent.
  virtual void OnEnd(const absl::Status& status) = 0;
};

}  // namespace cairn::net
