// A stream of messages, each a header and a payload, between two processes, without gRPC: over a TCP socket
// or, within a host, over a Unix socket, with payloads in shared memory if both ends support it.
//
// Large payloads are not copied where the system allows that:
// - Borrowed: the receiver reads the payload from the sender's memory (process_vm_readv(2)), straight to its
//   destination: one copy, where the shared ring needs two.
// - Mapped: the receiver maps the SharedBuffer that contains the payload, once, and uses the payload in
//   place: no copy.
// - Pinned: the socket refers to the sender's pages, instead of copying them, until the receiver has read
//   them.
//
//   client ── handshake: incarnation of the server, [shared memory, wake-up socket of the rings] ──► server
//   client ◄── handshake: [server can borrow] ── server
//   client ── [kBorrowing: client can borrow] ──► server
//   then both ends, at the same time:
//     { prologue, header, [payload, or its addresses, or nothing if it is in the ring] }...
//     { kReleased: number of borrowed, mapped or pinned payloads that have been read }...
//     { kRegion: a buffer to map, with its descriptor }, answered by { kMapped }
//   and the server: { kAllowed: credit, for flow control }...
//
// Each end has one thread, which receives, and sends what other threads have queued. Waking another thread
// would dominate the cost of a small request. Therefore the calling thread sends small messages itself, and a
// client's thread that waits for an answer may receive it itself (ReceiveUntil). Whatever the other end sends
// is considered hostile (shared_ring.h). An end that goes away closes its socket, which the other end notices
// at once.
#pragma once

#include <sys/uio.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/core/file_descriptor.h"
#include "common/core/mutex.h"
#include "common/net/data_channel/shared_memory/mapped_region.h"
#include "common/net/data_channel/shared_memory/peer_memory.h"
#include "common/net/data_channel/shared_memory/shared_buffer.h"
#include "common/net/data_channel/shared_memory/shared_ring.h"
#include "common/net/data_channel/socket/zero_copy_sender.h"
#include "common/net/data_channel/stream/busy_poll.h"
#include "common/net/data_channel/stream/credit_limit.h"
#include "common/net/data_channel/stream/wire.h"
#include "common/net/wire/frame.h"
#include "common/net/wire/outbox.h"
#include "common/system/thread.h"

namespace cairn::net {

// Called by the stream's thread, or by the thread that receives in its place, one call at a time; must not
// block.
class DataReceiver {
 public:
  virtual ~DataReceiver() = default;
  // The server's end: called once, before the first message, with the client's Options::shard. A status other
  // than OK refuses the client.
  virtual absl::Status OnHandshake(int64_t /*shard*/) { return absl::OkStatus(); }
  // Each message is one call of Begin(), then one of Complete(), unless the stream ends in between. A status
  // other than OK from either ends the stream and is sent to the other end.
  //
  // `header` is valid during the call. `bytes`: the size of the payload, if it has yet to arrive on the
  // socket, else 0. Returns the memory in which to receive those bytes, to save a copy; empty: any memory.
  virtual absl::StatusOr<absl::Span<char>> Begin(absl::Span<const char> header, size_t bytes) = 0;
  // `payload` is valid during the call. It is in the memory that Begin() returned, if that had `bytes` bytes.
  virtual absl::Status Complete(Payload payload) = 0;
  // Whether the other end may be silent because it waits for an answer. If so, Options::idle_limit does not
  // apply.
  virtual bool OwesAnswer() { return false; }
  // The last call, by the stream's thread. `status` is the reason why the stream has ended: CANCELLED if this
  // end closed it, UNAVAILABLE if the other end closed it or is gone, or the status that the other end sent.
  virtual void OnEnd(const absl::Status& status) = 0;
};

class DataStream {
 public:
  static constexpr int64_t kOwnShard = -1;
  struct Options {
    uint64_t incarnation = 0;  // the server's; both ends must agree
    // The secret that the server announces over gRPC to the tasks that may open streams (DataEndpoint::key):
    // kDataKeyBytes, or empty for none. A client with another key is refused.
    std::string key{};
    // Client: the shard that it requests; the server process may serve several shards.
    int64_t shard = kOwnShard;
    // Backpressure: while more messages than this are queued, nothing is received. A peer that does not read
    // its answers cannot send more requests.
    size_t rest_above = std::numeric_limits<size_t>::max();
    // The stream ends if the other end has taken none of the queued messages for this long.
    std::chrono::milliseconds stall_limit = std::chrono::hours(24 * 365);
    // Server: the stream ends if the client has sent nothing for `idle_limit` and waits for no answer, or if
    // its first message does not arrive within `first_limit` of the start.
    std::chrono::milliseconds idle_limit = std::chrono::hours(24 * 365);
    std::chrono::milliseconds first_limit = std::chrono::hours(24 * 365);
    // Whether payloads may be borrowed and mapped, in both directions, where memory is shared. Both ends must
    // set it.
    bool offers_memory = false;
    // Whether large payloads that this end sends over the socket are pinned.
    bool pins = true;
  };
  // The size of the ring of each direction: two fragments, so that both ends work at the same time within a
  // core's second-level cache. A larger ring costs both ends more time for each byte, because its data goes
  // to memory and back.
  static constexpr size_t kRingBytes = size_t{512} << 10;
  // The best size of a fragment of a large payload that is copied.
  static constexpr int64_t kFragmentFloats = int64_t{64} << 10;

  // Connects the client's end, and waits at most 5 s for the server's answer to the handshake. The transport
  // that both ends agreed on is then ready for use. UNAVAILABLE or DEADLINE_EXCEEDED if there is no answer,
  // or if shared memory is not available.
  static absl::StatusOr<std::unique_ptr<DataStream>> Connect(FileDescriptor socket, bool shared,
                                                             const Options& options, DataReceiver& receiver);
  // Creates the server's end. `shared`: whether a client may bring shared memory; if not, a client that does
  // is refused.
  static absl::StatusOr<std::unique_ptr<DataStream>> Accept(FileDescriptor socket, bool shared,
                                                            const Options& options, DataReceiver& receiver);
  // Calls Close().
  ~DataStream();
  // Starts the stream's thread; to be called once. Messages may be sent and arrive from then on. If Start()
  // is never called, or fails, OnEnd() is not called. RESOURCE_EXHAUSTED if the system refuses the thread.
  absl::Status Start();

  // Whether this payload would be borrowed or mapped.
  bool OffersMemory(FloatSpans payload) ABSL_LOCKS_EXCLUDED(mutex_) {
    return BorrowedFrom(payload).has_value();
  }
  // The best number of floats of this payload to send at a time, if it is neither borrowed nor mapped
  // (fragments.h). Pinned payloads cost least in large fragments. On the way to another host, small fragments
  // let more urgent ones overtake them.
  int64_t FragmentSizeOf(FloatSpans payload) const;
  // Queues a message with a payload of at most FragmentSizeOf() floats, or one that is borrowed or mapped;
  // does not block. `owner` keeps the payload's memory alive. The payload must stay unchanged until `owner`
  // is released or, without an owner, until the stream has ended. A payload in a SharedBuffer must stay
  // unchanged for longer if the receiver uses it in place (shared_buffer.h). Messages are sent in the order
  // of the calls, or by rank (Outbox); borrowed and mapped payloads have no rank. Any thread. After the end
  // of the stream nothing is sent.
  void Send(absl::Span<const char> header, FloatSpans payload, std::shared_ptr<const void> owner,
            std::optional<int64_t> rank = std::nullopt) ABSL_LOCKS_EXCLUDED(mutex_);

  // Client: receives messages in the calling thread, until `enough` returns true, a thread calls Nudge(), or
  // `deadline` passes. `enough` is called between messages. The calling thread must hold no lock that the
  // receiver takes. Returns false if the calling thread cannot receive: the stream's thread or another caller
  // is receiving at this moment, or the stream has ended.
  bool ReceiveUntil(absl::FunctionRef<bool()> enough, std::chrono::steady_clock::time_point deadline)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // Makes ReceiveUntil() return soon. Any thread.
  void Nudge() ABSL_LOCKS_EXCLUDED(mutex_);

  // Server: grants credit. The client may send `bytes` of payload beyond what has arrived, plus what travels
  // during a round trip; then it waits, for a limited time, for more credit (credit_limit.h). kNoLimit: no
  // limit. No effect within a host. Any thread.
  static constexpr uint64_t kNoLimit = CreditLimit::kNoLimit;
  void Allow(uint64_t bytes) ABSL_LOCKS_EXCLUDED(mutex_);

  // Ends the stream and returns after OnEnd(). Afterwards nothing refers to the memory of sent payloads. Must
  // not be called by the receiver's callbacks.
  void Close() ABSL_LOCKS_EXCLUDED(mutex_);
  // Ends the stream soon. Any thread.
  void Abort() ABSL_LOCKS_EXCLUDED(mutex_);

  bool ended() const { return ended_; }

 private:
  struct Message {
    DataPrologue prologue{};
    std::string header{};  // followed by the payload's BorrowedRuns, if it is borrowed or mapped
    // Empty if the payload is borrowed or mapped, and once it is in the ring.
    absl::InlinedVector<absl::Span<const float>, 2> payload{};
    std::shared_ptr<const void> owner{};           // keeps the memory of `payload` alive
    std::shared_ptr<const SharedRegion> region{};  // its descriptor is passed with the message
    size_t sent = 0;                               // sent bytes of prologue, header and payload
  };
  enum class Blocked { kNot, kBySocket, kByRing, kByCreditLimit };
  enum class Receiving { kNobody, kThread, kCaller };
  // Payloads up to this size go over the socket with their header: announcing an address would cost as much.
  // Messages up to this size, and those whose payload is borrowed or mapped, are sent by the calling thread,
  // which saves waking another one.
  static constexpr size_t kSmallBytes = size_t{16} << 10;
  // The smallest average size of a borrowed or mapped run, in bytes.
  static constexpr size_t kMinBorrowedRun = 4096;
  static constexpr size_t kMaxBorrowedRuns = kMaxPayloadBytes / kMinBorrowedRun;
  static constexpr size_t kMaxRuns = 64;  // the most runs in one system call
  // How many regions one end maps during the life of a stream. Payloads in other regions are borrowed.
  static constexpr size_t kMaxRegions = 8;
  // How many bytes are read from the socket before the kind of the message is known. The rest of a payload is
  // read straight to its destination.
  static constexpr size_t kReadAhead = 4096;
  // How many messages the stream's thread sends, or receives, before it turns to the other direction.
  static constexpr int kTurn = 4;

  DataStream(FileDescriptor socket, bool server, bool shared, const Options& options, DataReceiver& receiver);
  absl::Status UseRings(std::unique_ptr<SharedRings> rings, FileDescriptor ring_wake);
  DataHandshake OurHandshake() const;
  // Whether this end can read the other end's memory. Opens peer_.
  bool CanBorrow(const DataHandshake& theirs);

  void Run();
  absl::Status AwaitHandshake();  // the server's end
  // Waits until the stream's thread has something to do. `receive`: whether it should receive.
  absl::Status Wait(bool* receive) ABSL_LOCKS_EXCLUDED(mutex_);
  // UNAVAILABLE if the system had no file descriptor left for this stream.
  absl::Status CheckDescriptors() const;
  absl::Status Watch(const FileDescriptor& descriptor, uint32_t events);
  // Server: how long the client may still be silent; zero: it has been silent for too long.
  std::chrono::milliseconds SilenceLeft(std::chrono::steady_clock::time_point now);
  // Sets the events of the socket that wake the stream's thread.
  void Arm() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Makes a thread in ReceiveUntil() stop receiving, and prevents other threads from starting.
  void TakeOver() ABSL_LOCKS_EXCLUDED(mutex_);

  // Sends queued messages until something blocks, at most `most` of them. Only one thread at a time sends
  // (pumping_).
  absl::Status Pump(int most) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::StatusOr<Blocked> SendPartOf(Message& message) ABSL_LOCKS_EXCLUDED(mutex_);
  // How this payload would be sent without a copy. Returns the number of the mapped region that contains it,
  // 0 if the other end would borrow it, or nullopt if it must be copied. Announces a region that the other
  // end does not know.
  std::optional<uint64_t> BorrowedFrom(FloatSpans payload) ABSL_LOCKS_EXCLUDED(mutex_);
  // Whether this payload would be pinned.
  bool Pins(FloatSpans payload) const;
  // The parts of the prologue, header and payload that the socket has not taken yet, at most kMaxRuns of
  // them.
  static absl::InlinedVector<iovec, 8> UnsentOf(const Message& message, bool with_payload);
  // Sends from the message's payload by reference and returns how many bytes the socket has taken. 0 if the
  // socket has no room, or if pinning is impossible; in the second case pins_ is false afterwards.
  size_t SendPages(const Message& message);
  absl::StatusOr<Blocked> PutIntoRing(Message& message);
  void Queue(Message message, std::optional<int64_t> rank = std::nullopt) ABSL_LOCKS_EXCLUDED(mutex_);
  void Wake();

  // For a thread in ReceiveUntil(): waits until there is something to receive. Returns false if `deadline`
  // has passed or Nudge() was called.
  absl::StatusOr<bool> AwaitReadable(std::chrono::steady_clock::time_point deadline);
  // To be called at the end of ReceiveUntil(), when the calling thread stops receiving. `status` is the error
  // that it got, or OK. Returns false after an error, or if the stream is ending.
  bool StepBack(const absl::Status& status) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status Receive();
  absl::StatusOr<bool> ReceiveInto(char* to, size_t count, size_t* got);
  absl::Status FindDestination(const DataPrologue& prologue, absl::Span<const char> front);
  // Passes a message to the receiver.
  absl::Status Pass(absl::Span<const char> header, Payload payload);
  absl::Status Deliver(const DataPrologue& prologue, absl::Span<const char> front);
  absl::Status DeliverBorrowed(const DataPrologue& prologue, absl::Span<const char> front);
  absl::Status MapRegion(absl::Span<const char> told) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status HasMapped(uint64_t region) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status TakeBack(uint64_t count) ABSL_LOCKS_EXCLUDED(mutex_);
  void TakeCreditLimit(uint64_t bytes) ABSL_LOCKS_EXCLUDED(mutex_);
  // Whether the front of the queue, which has not been begun, must wait for credit.
  bool FrontWaits() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void SendReleased() ABSL_LOCKS_EXCLUDED(mutex_);
  void SendFarewell(const absl::Status& why) ABSL_LOCKS_EXCLUDED(mutex_);
  void Linger() ABSL_LOCKS_EXCLUDED(mutex_);
  // Shuts the socket down. Bytes that the other end reads from our memory afterwards are invalid, because the
  // memory may change.
  void ShutDown() ABSL_LOCKS_EXCLUDED(mutex_);

  const Options options_;
  const bool server_;
  const bool shared_;
  DataReceiver& receiver_;
  const FileDescriptor socket_;
  const bool within_host_;
  FileDescriptor wake_, nudge_;  // eventfds: for the stream's thread, for a thread in ReceiveUntil()
  FileDescriptor watch_;         // the epoll instance of the stream's thread
  // The rings do not change once the first message is sent or received. Over the socket ring_wake_, each end
  // wakes the other end's waiting writer when its own reader has freed room in the ring.
  std::unique_ptr<SharedRings> rings_;
  FileDescriptor ring_wake_;
  std::unique_ptr<RingWriter> writer_;  // used by the thread that pumps
  std::unique_ptr<RingReader> reader_;
  std::unique_ptr<ZeroCopySender> pages_;   // used by the thread that pumps
  const uint64_t probe_;                    // a value for the other end to find in our memory
  std::unique_ptr<PeerMemory> peer_;        // null: this end cannot borrow
  std::atomic<bool> offers_memory_{false};  // the other end can borrow
  std::atomic<bool> maps_{false};           // the other end maps regions
  std::atomic<bool> pins_;  // large payloads are pinned: there is no ring, and the system supports it

  // Used by the thread that receives (receiving_). The bytes [in_begin_, in_end_) of in_ have been received
  // but not parsed.
  std::vector<char> in_;
  size_t in_begin_ = 0, in_end_ = 0;
  // Memory for a payload on the socket, if the receiver has given no destination.
  std::vector<char> payload_;
  absl::Span<char> destination_;
  size_t payload_got_ = 0;
  uint64_t to_release_ = 0;  // payloads that have been read but not confirmed to the other end
  bool unread_ = true;       // there may be more to receive than the socket reports
  BusyPoll<> caller_waits_;
  // A payload of more than kSmallBytes has arrived since the thread's last wait.
  bool large_ = false;
  std::vector<FileDescriptor> passed_;  // for the next kRegion messages
  bool passed_all_ = true;              // no descriptor was lost, so they match the kRegion messages
  // The regions of the other end, by their numbers.
  std::map<uint64_t, std::shared_ptr<const MappedRegion>> regions_;

  // Used by the stream's thread.
  BusyPoll<> waits_;
  std::chrono::steady_clock::time_point progress_;  // when the other end last took data
  std::chrono::steady_clock::time_point heard_;     // when this thread last noticed a new message
  bool spoken_ = false;                             // the first message has arrived
  // True if a message has arrived after the time heard_. Set by the thread that receives, which may be a
  // thread in ReceiveUntil().
  std::atomic<bool> heard_more_{false};

  std::atomic<bool> ended_{false};
  std::atomic<bool> greeted_;
  std::atomic<bool> progressed_{false};
  std::atomic<uint64_t> payload_bytes_{0};  // the size of all payloads received

  Mutex mutex_;
  CondVar stepped_back_;  // signalled when a thread stops pumping or leaves ReceiveUntil()
  Outbox<Message> outgoing_ ABSL_GUARDED_BY(mutex_);
  // The owners of borrowed, mapped and pinned payloads that have not been read yet.
  std::deque<std::shared_ptr<const void>> borrowed_ ABSL_GUARDED_BY(mutex_);
  // Our regions that have been announced, by their numbers; true: the other end has mapped the region.
  std::map<uint64_t, bool> told_ ABSL_GUARDED_BY(mutex_);
  CreditLimit credit_limit_ ABSL_GUARDED_BY(mutex_);
  bool pumping_ ABSL_GUARDED_BY(mutex_) = false;
  bool closing_ ABSL_GUARDED_BY(mutex_) = false;
  Blocked blocked_ ABSL_GUARDED_BY(mutex_) = Blocked::kNot;
  // kThread from the moment the stream's thread is chosen to receive until it waits again.
  Receiving receiving_ ABSL_GUARDED_BY(mutex_) = Receiving::kThread;
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;  // the stream's thread is ending the stream
  bool resting_ ABSL_GUARDED_BY(mutex_) = false;
  // The events of the socket in watch_.
  uint32_t armed_ ABSL_GUARDED_BY(mutex_) = 0;
  // The error that another thread got while it sent a message or was in ReceiveUntil().
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);
  Thread thread_;
};

}  // namespace cairn::net
