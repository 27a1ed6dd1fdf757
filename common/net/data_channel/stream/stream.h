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
//
// A DataStream joins its parts, which it owns: the StreamHandshake, the StreamSender, the StreamReceiver and
// the StreamLoop, which the stream's thread runs.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/core/file_descriptor.h"
#include "common/net/data_channel/socket/event_fd.h"
#include "common/net/data_channel/stream/credit_limit.h"
#include "common/net/data_channel/stream/data_receiver.h"
#include "common/net/data_channel/stream/handshake.h"
#include "common/net/data_channel/stream/stream_loop.h"
#include "common/net/data_channel/stream/stream_options.h"
#include "common/net/data_channel/stream/stream_receiver.h"
#include "common/net/data_channel/stream/stream_sender.h"
#include "common/net/wire/frame.h"
#include "common/system/thread.h"

namespace cairn::net {

class DataStream {
 public:
  using Options = StreamOptions;
  static constexpr size_t kRingBytes = net::kRingBytes;
  static constexpr int64_t kFragmentFloats = net::kFragmentFloats;

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

  // How this payload would travel, and in which fragments (fragments.h). Borrowed, mapped and pinned payloads
  // cost least in large fragments. On the way to another host, small fragments let more urgent ones overtake
  // them.
  PayloadRoute RouteOf(FloatSpans payload) { return sender_.RouteOf(payload); }
  // Queues a message with a payload of at most `route.fragment_floats` floats; does not block. `route`: of
  // this payload, or of the larger payload that it is a fragment of. `owner` keeps the payload's memory alive.
  // The payload must stay unchanged until `owner` is released or, without an owner, until the stream has
  // ended. A payload in a SharedBuffer must stay unchanged for longer if the receiver uses it in place
  // (shared_buffer.h). Messages are sent in the order of the calls, or by rank (Outbox); borrowed and mapped
  // payloads have no rank. Any thread. After the end of the stream nothing is sent.
  void Send(std::string header, FloatSpans payload, std::shared_ptr<const void> owner,
            const PayloadRoute& route, std::optional<int64_t> rank = std::nullopt) {
    sender_.Send(std::move(header), payload, std::move(owner), route, rank);
  }
  // The same, for a payload that is sent whole.
  void Send(std::string header, FloatSpans payload, std::shared_ptr<const void> owner,
            std::optional<int64_t> rank = std::nullopt) {
    Send(std::move(header), payload, std::move(owner), RouteOf(payload), rank);
  }

  // Client: receives messages in the calling thread, until `enough` returns true, a thread calls Nudge(), or
  // `deadline` passes. `enough` is called between messages. The calling thread must hold no lock that the
  // receiver takes. Returns false if the calling thread cannot receive: the stream's thread or another caller
  // is receiving at this moment, or the stream has ended.
  bool ReceiveUntil(absl::FunctionRef<bool()> enough, std::chrono::steady_clock::time_point deadline) {
    return loop_.ReceiveUntil(enough, deadline);
  }
  // Makes ReceiveUntil() return soon. Any thread.
  void Nudge() { loop_.Nudge(); }

  // Server: grants credit. The client may send `bytes` of payload beyond what has arrived, plus what travels
  // during a round trip; then it waits, for a limited time, for more credit (credit_limit.h). kNoLimit: no
  // limit. No effect within a host. Any thread.
  static constexpr uint64_t kNoLimit = CreditLimit::kNoLimit;
  void Allow(uint64_t bytes);

  // Ends the stream and returns after OnEnd(). Afterwards nothing refers to the memory of sent payloads. Must
  // not be called by the receiver's callbacks.
  void Close();
  // Ends the stream soon. Any thread.
  void Abort();
  // Ends the stream soon, and sends the other end the reason, which is not OK. Any thread, also in the
  // receiver's callbacks.
  void Finish(absl::Status why) { loop_.Finish(std::move(why)); }

  bool ended() const { return ended_; }

 private:
  DataStream(FileDescriptor socket, bool server, bool shared, const Options& options, DataReceiver& user);
  // Uses what the handshake has agreed on.
  absl::Status Begin(absl::StatusOr<StreamTerms> terms);
  void Run();
  // Sends the other end the reason why the stream ends, shuts the socket down and releases all payloads.
  // Returns the status for OnEnd().
  absl::Status End(absl::Status why);

  const Options options_;
  const bool server_;
  DataReceiver& user_;
  const FileDescriptor socket_;
  const EventFd wake_;  // wakes the stream's thread
  StreamHandshake handshake_;
  StreamTerms terms_;  // set once, by Begin()
  StreamSender sender_;
  StreamReceiver receiver_;
  StreamLoop loop_;
  std::atomic<bool> ended_{false};
  Thread thread_;
};

}  // namespace cairn::net
