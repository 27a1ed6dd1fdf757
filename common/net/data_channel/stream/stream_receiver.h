// The receiving half of a DataStream: finds the payload of each message, on the socket, in the ring, in the
// other end's memory or in a region mapped from it, and passes the message to the DataReceiver. Handles the
// messages of the protocol itself. Whatever arrives is considered hostile.
//
// Owned by the DataStream. Used by the thread that receives: the stream's thread, or a thread in
// ReceiveUntil(). The StreamLoop passes this role on under its lock.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/core/file_descriptor.h"
#include "common/net/data_channel/shared_memory/mapped_region.h"
#include "common/net/data_channel/shared_memory/peer_memory.h"
#include "common/net/data_channel/shared_memory/shared_ring.h"
#include "common/net/data_channel/stream/data_receiver.h"
#include "common/net/data_channel/stream/handshake.h"
#include "common/net/data_channel/stream/message_reader.h"
#include "common/net/data_channel/stream/stream_options.h"
#include "common/net/data_channel/stream/stream_sender.h"

namespace cairn::net {

class StreamReceiver {
 public:
  // All must outlive this object.
  StreamReceiver(const FileDescriptor& socket, bool server, const StreamOptions& options,
                 DataReceiver& receiver, StreamSender& sender);

  // Uses the result of the handshake, before the first message. Takes `terms.peer`; the rest must outlive this
  // object.
  void Begin(StreamTerms& terms);

  // Receives messages that have arrived, at most `most` of them, until the sender must rest. An error means
  // that the stream must end: the reason that the other end sent, UNAVAILABLE, INVALID_ARGUMENT for a message
  // that breaks the protocol, or the status of the DataReceiver.
  absl::Status Receive(int most);
  // Confirms to the other end which payloads have been read. To be called after Receive().
  void ConfirmReleased();
  // After the last Receive(): forgets the rings, and all regions.
  void Close();

  // There may be more to receive than the socket reports.
  bool unread() const { return reader_.unread(); }
  void set_unread() { reader_.set_unread(); }
  // Whether a payload of more than kSmallBytes has arrived since the last call.
  bool TakeLarge() { return std::exchange(large_, false); }
  // Whether a message has arrived since the last call. Any thread.
  bool TakeHeard() { return heard_.exchange(false, std::memory_order_relaxed); }
  // The size of all payloads received. Any thread.
  uint64_t payload_bytes() const { return payload_bytes_; }

 private:
  absl::Status Deliver(const IncomingMessage& message);
  absl::Status HandleControl(const IncomingMessage& message);
  absl::Status DeliverInRing(const IncomingMessage& message);
  absl::Status DeliverBorrowed(const IncomingMessage& message);
  // Passes the message to the DataReceiver.
  absl::Status Pass(absl::Span<const char> header, Payload payload);
  absl::Status MapRegion(const IncomingMessage& message);

  const FileDescriptor& socket_;
  const bool server_;
  const StreamOptions& options_;
  DataReceiver& receiver_;
  StreamSender& sender_;
  MessageReader reader_;
  std::unique_ptr<RingReader> ring_;           // null: there are no rings
  const FileDescriptor* ring_wake_ = nullptr;  // StreamTerms::ring_wake
  std::unique_ptr<PeerMemory> peer_;           // null: this end cannot borrow
  // Where the payload of the front message is received; valid while receiving_payload_.
  absl::Span<char> destination_;
  bool receiving_payload_ = false;
  uint64_t to_release_ = 0;  // payloads that have been read but not confirmed to the other end
  bool large_ = false;
  // The regions of the other end, by their numbers.
  std::map<uint64_t, std::shared_ptr<const MappedRegion>> regions_;

  std::atomic<bool> heard_{false};
  std::atomic<uint64_t> payload_bytes_{0};
};

}  // namespace cairn::net
