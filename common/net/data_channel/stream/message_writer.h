// Writes the messages of a stream to its socket, and large payloads to its ring or by reference to their
// pages, without blocking.
//
// Owned by the StreamSender. One thread at a time, the one that pumps, except for Pins(). An error means that
// the stream must end.
#pragma once

#include <sys/uio.h>

#include <atomic>
#include <cstddef>
#include <memory>
#include <string>

#include "absl/container/inlined_vector.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/core/file_descriptor.h"
#include "common/net/data_channel/shared_memory/shared_buffer.h"
#include "common/net/data_channel/shared_memory/shared_ring.h"
#include "common/net/data_channel/socket/zero_copy_sender.h"
#include "common/net/data_channel/stream/wire.h"
#include "common/net/wire/frame.h"

namespace cairn::net {

size_t BytesIn(FloatSpans payload);

struct OutgoingMessage {
  DataPrologue prologue{};
  std::string header{};  // followed by the payload's BorrowedRuns, if it is borrowed or mapped
  // Empty if the payload is borrowed or mapped, and once it is in the ring.
  absl::InlinedVector<absl::Span<const float>, 2> payload{};
  std::shared_ptr<const void> owner{};           // keeps the memory of `payload` alive
  std::shared_ptr<const SharedRegion> region{};  // its descriptor is passed with the message
  size_t sent = 0;                               // sent bytes of prologue, header and payload
};

// The reason why the front of the queue waits.
enum class Blocked { kNot, kBySocket, kByRing, kByCreditLimit };

class MessageWriter {
 public:
  // `socket` must outlive the writer. `pins`: whether large payloads are pinned.
  MessageWriter(const FileDescriptor& socket, bool pins) : socket_(socket), pins_(pins) {}

  // Before the first message: large payloads are copied to this ring of `rings` from now on.
  void UseRing(const SharedRings& rings, int ring);
  // Writes what is left of the message, as far as there is room; kNot: the message is complete.
  absl::StatusOr<Blocked> Write(OutgoingMessage& message);
  // Whether this payload, which is neither borrowed nor mapped, would be pinned. Any thread.
  bool Pins(FloatSpans payload) const;
  // After the last Write(): frees the pipe and forgets the ring.
  void Close();

 private:
  static constexpr size_t kMaxRuns = 64;  // the most runs in one system call

  absl::StatusOr<Blocked> PutIntoRing(OutgoingMessage& message);
  // The parts of the prologue, header and payload that the socket has not taken yet, at most kMaxRuns of
  // them.
  static absl::InlinedVector<iovec, 8> UnsentOf(const OutgoingMessage& message, bool with_payload);
  // Sends from the message's payload by reference and returns how many bytes the socket has taken. 0 if the
  // socket has no room, or if pinning is impossible; in the second case pins_ is false afterwards.
  size_t SendPages(const OutgoingMessage& message);

  const FileDescriptor& socket_;
  std::unique_ptr<RingWriter> ring_;       // null: there is none
  std::unique_ptr<ZeroCopySender> pages_;  // null until the first pinned payload
  std::atomic<bool> pins_;                 // there is no ring, and the system supports pinning
};

}  // namespace cairn::net
