// Messages, a header and a payload each, between two processes, without gRPC: over a TCP socket, or, on one
// host, over a Unix socket, payloads in shared memory where both ends have it. Where a receiver can read the
// sender's memory, large payloads stay there, lent, until it has: they are copied once, to their place, where
// a ring takes two copies. What lies in a SharedBuffer is not copied at all, if the receiver can use it
// there: it maps the buffer when it is first sent from. Nor are those that go over the socket, where the
// system lets it refer to the sender's memory instead of a copy: they are held until they have been read.
//
//   client ──greeting: which server I mean, [shared memory, the way to say that it is free]──► server
//   client ◄──greeting: [lend me]───────────────────────────────────────────────────────────── server
//   client ──[lend me]───────────────────────────────────────────────────────────────────────► server
//   then both, at the same time: { prologue, header, [payload, or where it lies unless in the ring] }...
//   and of what was lent or held: { prologue: so many have been read }...
//   and of a buffer to map: { prologue, which, its descriptor }; and back: { prologue: it has been }
//   client ◄──{ prologue: so much you may send }... ────────────────────────────────────────── server
//
// One thread for each end, which receives, and sends what its callers have queued. A small message is sent by
// its caller, and a client's caller who waits for an answer may receive it: each spares the waking of another
// thread, of which a small request would otherwise be mostly made. What the other end says is taken for
// hostile (shared_ring.h). An end that goes away, however, closes its socket, which the other sees at once.
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
#include "common/core/thread.h"
#include "common/net/direct/allowance.h"
#include "common/net/direct/busy_poll.h"
#include "common/net/direct/mapped_region.h"
#include "common/net/direct/page_pipe.h"
#include "common/net/direct/peer_memory.h"
#include "common/net/direct/shared_buffer.h"
#include "common/net/direct/shared_ring.h"
#include "common/net/direct/wire.h"
#include "common/net/frame.h"
#include "common/net/outbox.h"

namespace cairn::net {

// Called by the stream's thread, or by who receives in its place, one call at a time; must not block.
class DirectReceiver {
 public:
  virtual ~DirectReceiver() = default;
  // The server's end, once, before the first message: the client's Options::part. A status that is not OK
  // sends it away.
  virtual absl::Status OnGreeting(int64_t /*part*/) { return absl::OkStatus(); }
  // Where the payload of `bytes` that follows this header on the socket is to be put, so that it need not be
  // copied: OnMessage(), the next call, has it there. Empty: anywhere.
  virtual absl::Span<char> PlaceFor(absl::Span<const char> /*header*/, size_t /*bytes*/) { return {}; }
  // Both are valid during the call. A status that is not OK ends the stream, and the other end is told.
  virtual absl::Status OnMessage(absl::Span<const char> header, Payload payload) = 0;
  // Whether the other end may be silent because it waits for us: Options::idle_limit does not apply then.
  virtual bool OwesAnswer() { return false; }
  // The last call, by the stream's thread: why the stream has ended. CANCELLED when this end closed it,
  // UNAVAILABLE when the other end did or is gone, or what the other end told.
  virtual void OnEnd(const absl::Status& status) = 0;
};

class DirectStream {
 public:
  static constexpr int64_t kOwnPart = -1;
  struct Options {
    uint64_t incarnation = 0;  // of the server: both ends must mean the same
    // The secret that the server tells, over gRPC, those who may open streams (DirectAddress::key):
    // kDirectKeyBytes, or empty for none. A client with another key is sent away.
    std::string key{};
    int64_t part = kOwnPart;  // the client's: which server's part it means, of those that the process has
    // With more messages queued, nothing is received: who does not take its answers may ask for no more.
    size_t rest_above = std::numeric_limits<size_t>::max();
    // The stream ends when the other end has taken nothing of what is queued for so long.
    std::chrono::milliseconds stall_limit = std::chrono::hours(24 * 365);
    // The server's end: the stream ends when the client has said nothing for so long, and is owed nothing;
    // and when its first message has not come within `first_limit` of the start.
    std::chrono::milliseconds idle_limit = std::chrono::hours(24 * 365);
    std::chrono::milliseconds first_limit = std::chrono::hours(24 * 365);
    // Payloads may come lent, where memory is shared; and ours be lent to who takes them so. Both ends must
    // say so.
    bool lends = false;
    // Large payloads of ours that go over the socket are held.
    bool holds = true;
  };
  // Of each direction's ring: two pieces, so that both ends work at once in a part of a processor's second
  // cache. Larger ones cost both ends more time for each byte, by what goes to memory and comes back.
  static constexpr size_t kRingBytes = size_t{512} << 10;
  // How much of a large payload that is copied is best sent at a time.
  static constexpr int64_t kPieceFloats = int64_t{64} << 10;

  // The client's end, when the server has greeted: what the two have agreed on works. Waits for that at most
  // 5 s. UNAVAILABLE or DEADLINE_EXCEEDED when it does not, and when the shared memory cannot be had.
  static absl::StatusOr<std::unique_ptr<DirectStream>> Connect(FileDescriptor socket, bool shared,
                                                               const Options& options,
                                                               DirectReceiver& receiver);
  // The server's end. `shared`: whether a client may bring shared memory; else it is sent away.
  static absl::StatusOr<std::unique_ptr<DirectStream>> Accept(FileDescriptor socket, bool shared,
                                                              const Options& options,
                                                              DirectReceiver& receiver);
  // As Close().
  ~DirectStream();
  // Once; messages may be sent from then on, and come. Without it, and where it fails, OnEnd() is not called.
  // RESOURCE_EXHAUSTED when the system refuses the thread.
  absl::Status Start();

  // Whether such a payload would be lent.
  bool Lends(FloatSpans payload) ABSL_LOCKS_EXCLUDED(mutex_) { return LendingOf(payload).has_value(); }
  // How much of such a payload, where it is not lent, is best sent at a time (pieces.h). What the socket
  // refers to costs least in large pieces; on its way to another host, small ones let what is needed sooner
  // overtake it.
  int64_t PieceOf(FloatSpans payload) const;
  // Queues a message of at most PieceOf() floats, or one that is lent; does not block. The payload's memory
  // must stay unchanged until `owner`, which keeps it alive, is released or, without one, the stream has
  // ended; in a SharedBuffer for longer, if the receiver keeps it (shared_buffer.h). Messages go in the order
  // of the calls, or by their rank (Outbox), but what is lent has none. Any thread. After the end nothing is
  // sent.
  void Send(absl::Span<const char> header, FloatSpans payload, std::shared_ptr<const void> owner,
            std::optional<int64_t> rank = std::nullopt) ABSL_LOCKS_EXCLUDED(mutex_);

  // The client's end: receives in the calling thread, until `enough`, which is asked between messages and
  // holds no lock that the receiver takes, until somebody calls Nudge(), or until `deadline`. False, at once
  // or later, where the stream's thread sees to it: it is receiving at this moment, another caller is, or the
  // stream has ended.
  bool ReceiveUntil(absl::FunctionRef<bool()> enough, std::chrono::steady_clock::time_point deadline)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // Who is in ReceiveUntil() returns soon. Any thread.
  void Nudge() ABSL_LOCKS_EXCLUDED(mutex_);

  // The server's end: the client may send so many more bytes of payloads than have come, and what is on its
  // way in a round trip; then it waits, for a while, to be allowed more (allowance.h). kNoLimit: all it
  // likes. Of no effect within a host. Any thread.
  static constexpr uint64_t kNoLimit = Allowance::kNoLimit;
  void Allow(uint64_t bytes) ABSL_LOCKS_EXCLUDED(mutex_);

  // Ends the stream, and returns after OnEnd(): no memory that was sent is referred to any more. Not from its
  // callbacks.
  void Close() ABSL_LOCKS_EXCLUDED(mutex_);
  // Ends the stream soon. Any thread.
  void Abort() ABSL_LOCKS_EXCLUDED(mutex_);

  bool ended() const { return ended_; }

 private:
  struct Message {
    DirectPrologue prologue{};
    std::string header{};                                       // and, where the payload is lent, its runs
    absl::InlinedVector<absl::Span<const float>, 2> payload{};  // unless lent, until it is in the ring
    std::shared_ptr<const void> owner{};                        // of `payload`
    std::shared_ptr<const SharedRegion> region{};               // whose descriptor goes with it
    size_t sent = 0;                                            // bytes of prologue, header and payload
  };
  enum class Blocked { kNot, kBySocket, kByRing, kByAllowance };
  enum class Receiving { kNobody, kThread, kCaller };
  // Payloads up to here go over the socket, with their header: telling of a place costs as much. Messages up
  // to here, and those whose payload is lent, are sent by their caller, who is spared the way to another
  // thread.
  static constexpr size_t kSmallBytes = size_t{16} << 10;
  static constexpr size_t kLeastLentRun = 4096;  // bytes, on average
  static constexpr size_t kMostLentRuns = kMaxPayloadBytes / kLeastLentRun;
  static constexpr size_t kMostRuns = 64;  // of one system call
  // Of regions that one end maps, for as long as the stream lives: what lies in others is lent as ever.
  static constexpr size_t kMostRegions = 8;
  // Taken from the socket before it is known what it is; the rest of a payload goes to its place at once.
  static constexpr size_t kReadAhead = 4096;
  // How many messages go one way before it is the other's turn.
  static constexpr int kTurn = 4;

  DirectStream(FileDescriptor socket, bool server, bool shared, const Options& options,
               DirectReceiver& receiver);
  absl::Status UseRings(std::unique_ptr<SharedRings> rings, FileDescriptor credit);
  DirectGreeting OurGreeting() const;
  // What the other end may lend us can be read here.
  bool CanBorrow(const DirectGreeting& theirs);

  void Run();
  absl::Status AwaitGreeting();  // the server's
  // Until there is something to do for the stream's thread. `receive`: it is to receive.
  absl::Status Wait(bool* receive) ABSL_LOCKS_EXCLUDED(mutex_);
  // UNAVAILABLE when the system had no descriptor for one of ours.
  absl::Status CheckDescriptors() const;
  absl::Status Watch(const FileDescriptor& descriptor, uint32_t events);
  // The server's end: how long the client may still be silent; zero: it was for too long.
  std::chrono::milliseconds SilenceLeft(std::chrono::steady_clock::time_point now);
  // The socket, for what the thread has to do with it.
  void Arm() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // A caller who receives does so no more, and none will.
  void TakeOver() ABSL_LOCKS_EXCLUDED(mutex_);

  // Sends what is queued until something blocks, at most `most` messages. By one thread at a time: pumping_.
  absl::Status Pump(int most) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::StatusOr<Blocked> SendPartOf(Message& message) ABSL_LOCKS_EXCLUDED(mutex_);
  // How such a payload would be lent: in which region that the other end has mapped, or, where it reads our
  // memory, 0. None: not. Tells it of a region that it does not know.
  std::optional<uint64_t> LendingOf(FloatSpans payload) ABSL_LOCKS_EXCLUDED(mutex_);
  // Whether such a payload goes by reference.
  bool Holds(FloatSpans payload) const;
  // Of its prologue, header and payload, what the socket has not taken, at most kMostRuns of it.
  static absl::InlinedVector<iovec, 8> UnsentOf(const Message& message, bool with_payload);
  // Of its payload, by reference. 0: the socket has no room, or this cannot be done, and holds_ ends.
  size_t SendPages(const Message& message);
  absl::StatusOr<Blocked> PutIntoRing(Message& message);
  void Queue(Message message, std::optional<int64_t> rank = std::nullopt) ABSL_LOCKS_EXCLUDED(mutex_);
  void Wake();

  // Of the caller who receives: waits until there is something to receive. False: not by `deadline`, or
  // somebody has called Nudge().
  absl::StatusOr<bool> AwaitReadable(std::chrono::steady_clock::time_point deadline);
  // Why it receives no more, if it has met a failure. False: nobody will.
  bool StepBack(const absl::Status& status) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status Receive();
  absl::StatusOr<bool> ReceiveInto(char* to, size_t count, size_t* got);
  void FindPlace(const DirectPrologue& prologue, absl::Span<const char> front);
  absl::Status Deliver(const DirectPrologue& prologue, absl::Span<const char> front);
  absl::Status DeliverLent(const DirectPrologue& prologue, absl::Span<const char> front);
  absl::Status MapRegion(absl::Span<const char> told) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status HasMapped(uint64_t region) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status TakeBack(uint64_t count) ABSL_LOCKS_EXCLUDED(mutex_);
  void TakeAllowance(uint64_t bytes) ABSL_LOCKS_EXCLUDED(mutex_);
  // The front, which is not begun, must wait for an allowance.
  bool FrontWaits() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void TellBorrowed() ABSL_LOCKS_EXCLUDED(mutex_);
  void SayFarewell(const absl::Status& why) ABSL_LOCKS_EXCLUDED(mutex_);
  void Linger() ABSL_LOCKS_EXCLUDED(mutex_);
  // The socket's end: what is read of ours from now on does not count, for it may change.
  void ShutDown() ABSL_LOCKS_EXCLUDED(mutex_);

  const Options options_;
  const bool server_;
  const bool shared_;
  DirectReceiver& receiver_;
  const FileDescriptor socket_;
  const bool within_host_;
  FileDescriptor wake_, nudge_;  // eventfds: for the stream's thread, for a caller who receives
  FileDescriptor watch_;         // an epoll, the thread's
  // Constant once the first message is sent or received. credit_: each side says there that its reader has
  // given room back, when the other's writer waits for it.
  std::unique_ptr<SharedRings> rings_;
  FileDescriptor credit_;
  std::unique_ptr<RingWriter> writer_;  // of who pumps
  std::unique_ptr<RingReader> reader_;
  std::unique_ptr<PagePipe> pages_;   // of who pumps
  const uint64_t probe_;              // for the other end to find in our memory
  std::unique_ptr<PeerMemory> peer_;  // null: nothing may come lent
  std::atomic<bool> lends_{false};    // the other end takes what is lent
  std::atomic<bool> maps_{false};     // it maps regions
  std::atomic<bool> holds_;           // no ring takes its place, and the system can

  // Of who receives: receiving_. What has been received and not taken apart yet: [in_begin_, in_end_) of in_.
  std::vector<char> in_;
  size_t in_begin_ = 0, in_end_ = 0;
  std::vector<char> payload_;  // of a message that comes over the socket, where it has no better place_
  absl::Span<char> place_;
  size_t payload_got_ = 0;
  uint64_t borrowed_ = 0;  // lent and held messages read, of which the other end has not been told
  bool unread_ = true;     // there may be more to receive than the socket says
  BusyPoll<> caller_waits_;
  bool large_ = false;  // something of more than kSmallBytes has come since the thread's last wait
  std::vector<FileDescriptor> passed_;  // for the next kRegions
  bool passed_all_ = true;              // none was lost on the way, so that each is of its kRegion
  std::map<uint64_t, std::shared_ptr<const MappedRegion>> regions_;  // [number], the other end's

  // The stream's thread's.
  BusyPoll<> waits_;
  std::chrono::steady_clock::time_point progress_;  // when something of ours was last taken
  std::chrono::steady_clock::time_point heard_;     // when the last message was seen to have come
  bool spoken_ = false;                             // a message has come
  std::atomic<bool> heard_more_{false};             // one has since heard_; also set by a receiving caller

  std::atomic<bool> ended_{false};
  std::atomic<bool> greeted_;
  std::atomic<bool> progressed_{false};
  std::atomic<uint64_t> payload_bytes_{0};  // that have come

  Mutex mutex_;
  CondVar stepped_back_;  // who pumped, or a caller who received
  Outbox<Message> outgoing_ ABSL_GUARDED_BY(mutex_);
  std::deque<std::shared_ptr<const void>> lent_
      ABSL_GUARDED_BY(mutex_);                             // owners of what has not been read yet
  std::map<uint64_t, bool> told_ ABSL_GUARDED_BY(mutex_);  // [number] of our regions: it has been mapped
  Allowance allowance_ ABSL_GUARDED_BY(mutex_);
  bool pumping_ ABSL_GUARDED_BY(mutex_) = false;
  bool closing_ ABSL_GUARDED_BY(mutex_) = false;
  Blocked blocked_ ABSL_GUARDED_BY(mutex_) = Blocked::kNot;
  // The thread from when it was told to until it waits again.
  Receiving receiving_ ABSL_GUARDED_BY(mutex_) = Receiving::kThread;
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;  // the thread sees to the rest
  bool resting_ ABSL_GUARDED_BY(mutex_) = false;
  uint32_t armed_ ABSL_GUARDED_BY(mutex_) = 0;    // of watch_, for the socket
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);  // met by a caller that pumped or received
  Thread thread_;
};

}  // namespace cairn::net
