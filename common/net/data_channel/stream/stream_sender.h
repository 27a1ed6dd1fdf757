// The sending half of a DataStream: the queue of messages, credit, and the memory of payloads that the other
// end still reads.
//
// Owned by the DataStream. Messages are queued by any thread. They are sent by one thread at a time: the
// calling thread sends small ones at once, the stream's thread sends the rest (Pump). Whichever thread leaves
// something behind wakes the stream's thread. The lock is not held while a message is written.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/core/file_descriptor.h"
#include "common/core/mutex.h"
#include "common/net/data_channel/socket/event_fd.h"
#include "common/net/data_channel/stream/credit_limit.h"
#include "common/net/data_channel/stream/handshake.h"
#include "common/net/data_channel/stream/message_writer.h"
#include "common/net/data_channel/stream/payload_routes.h"
#include "common/net/data_channel/stream/stream_options.h"
#include "common/net/data_channel/stream/wire.h"
#include "common/net/wire/frame.h"
#include "common/net/wire/outbox.h"

namespace cairn::net {

// How a payload travels. Decided once for all of its fragments.
struct PayloadRoute {
  // The region in which the payload is mapped, 0 if it is borrowed, nullopt if it is copied or pinned.
  std::optional<uint64_t> region;
  // The largest fragment, in floats.
  int64_t fragment_floats = 0;
};

class StreamSender {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  // The arguments must outlive the sender. `wake` wakes the stream's thread.
  StreamSender(const FileDescriptor& socket, const StreamOptions& options, const EventFd& wake);

  // Uses the result of the handshake, which must outlive this object. Until then, messages are only queued.
  void Begin(const StreamTerms& terms, bool server);
  PayloadRoutes& routes() { return routes_; }

  // Any thread: see DataStream. GrantCredit(): `received` bytes of payload have arrived so far.
  PayloadRoute RouteOf(FloatSpans payload) ABSL_LOCKS_EXCLUDED(mutex_);
  void Send(std::string header, FloatSpans payload, std::shared_ptr<const void> owner,
            const PayloadRoute& route, std::optional<int64_t> rank) ABSL_LOCKS_EXCLUDED(mutex_);
  void GrantCredit(uint64_t bytes, uint64_t received) ABSL_LOCKS_EXCLUDED(mutex_);
  // Queues a message of the protocol itself.
  void SendControl(DataPrologue::Kind kind, uint64_t position) ABSL_LOCKS_EXCLUDED(mutex_) {
    Queue({.prologue = {.kind = kind, .position = position}}, std::nullopt);
  }

  // Messages of the other end, for the thread that receives. TakeBack(): it has read `count` payloads.
  // INVALID_ARGUMENT if fewer are outstanding.
  absl::Status TakeBack(uint64_t count) ABSL_LOCKS_EXCLUDED(mutex_);
  void SetCreditLimit(uint64_t bytes) ABSL_LOCKS_EXCLUDED(mutex_);
  // Whether no more may be received at present: StreamOptions::rest_above is exceeded, or Close() was called.
  bool MustRest() ABSL_LOCKS_EXCLUDED(mutex_);

  // Sends queued messages until something blocks, at most `most` of them.
  absl::Status Pump(int most) ABSL_LOCKS_EXCLUDED(mutex_) { return PumpUpTo(most).status; }
  // The reasons for the stream's thread to wait.
  struct Outlook {
    Blocked blocked = Blocked::kNot;
    bool rests = false;   // StreamOptions::rest_above is exceeded
    int timeout_ms = -1;  // the longest time to wait; -1: any
  };
  // Called by the stream's thread before it waits. Returns the error that another thread got while it sent a
  // message, or UNAVAILABLE after StreamOptions::stall_limit.
  absl::StatusOr<Outlook> LookAhead(TimePoint now) ABSL_LOCKS_EXCLUDED(mutex_);
  // Called by the stream's thread after it waited: what has room now.
  void Unblock(bool socket, bool ring) ABSL_LOCKS_EXCLUDED(mutex_);

  // The end of the stream. Close(): nothing is queued or begun any more.
  void Close() ABSL_LOCKS_EXCLUDED(mutex_);
  // Waits until no thread is sending. Returns whether the socket is between two messages.
  bool AwaitPause() ABSL_LOCKS_EXCLUDED(mutex_);
  // Whether the other end may still read the memory of a payload.
  bool AnyBorrowed() ABSL_LOCKS_EXCLUDED(mutex_);
  // Closes, and releases all payloads.
  void Clear() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  struct Pumped {
    absl::Status status;
    bool left = false;  // something is left to send, which does not wait for credit
  };

  void Queue(OutgoingMessage message, std::optional<int64_t> rank) ABSL_LOCKS_EXCLUDED(mutex_);
  Pumped PumpUpTo(int most) ABSL_LOCKS_EXCLUDED(mutex_);
  // Returns the message that the calling thread must write; null: none, or another thread is writing.
  OutgoingMessage* BeginTurn(bool* left) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status EndTurn(OutgoingMessage* front, const absl::StatusOr<Blocked>& blocked,
                       std::shared_ptr<const void>* owner, bool* left) ABSL_LOCKS_EXCLUDED(mutex_);
  bool Left() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return !outgoing_.empty() && blocked_ != Blocked::kByCreditLimit;
  }
  // Whether the front of the queue, which has not been begun, must wait for credit.
  bool FrontWaits() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const FileDescriptor& socket_;
  const StreamOptions& options_;
  const EventFd& wake_;
  const bool within_host_;
  MessageWriter writer_;  // used by the thread that pumps
  PayloadRoutes routes_;
  std::atomic<bool> begun_{false};
  TimePoint progress_;  // when the other end last took data; used by the stream's thread

  Mutex mutex_;
  CondVar paused_;  // signalled when a thread stops pumping
  Outbox<OutgoingMessage> outgoing_ ABSL_GUARDED_BY(mutex_);
  // The owners of borrowed, mapped and pinned payloads that have not been read yet.
  std::deque<std::shared_ptr<const void>> borrowed_ ABSL_GUARDED_BY(mutex_);
  CreditLimit credit_limit_ ABSL_GUARDED_BY(mutex_);
  Blocked blocked_ ABSL_GUARDED_BY(mutex_) = Blocked::kNot;
  bool pumping_ ABSL_GUARDED_BY(mutex_) = false;
  bool progressed_ ABSL_GUARDED_BY(mutex_) = false;  // since progress_
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  // The error that another thread than the stream's got while it sent a message.
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cairn::net
