// One client's stream of frames (session.proto), whatever carries it.
//
// Made and owned by the transport, for as long as the stream lives; what half came goes with it. OnFrame()
// from one thread at a time. Answers go to the sink from any thread, also when the session is gone: they hold
// the sink alone.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <variant>

#include "absl/status/status.h"
#include "cairn/v1/session.pb.h"
#include "common/core/trace.h"
#include "common/net/frame.h"
#include "ps/permissions.h"
#include "ps/server.h"

namespace cairn::ps {

// The way back to the client. Thread-safe; frames arrive in the order of the calls. After the stream has
// ended it drops them.
class SessionSink {
 public:
  virtual ~SessionSink() = default;
  // `owner` keeps the payload's memory alive and unchanged.
  virtual void Send(const v1::ServerHeader& header, net::FloatSpans payload,
                    const std::shared_ptr<const void>& owner) = 0;
  // The same of a chunk. Of those that are sent so and still wait, one behind another, the first of the arena
  // may go first: the next forward pass needs it soonest.
  virtual void SendPiece(const v1::ServerHeader& header, net::FloatSpans payload,
                         const std::shared_ptr<const void>& owner) {
    Send(header, payload, owner);
  }
  // The client may send so many more bytes of payloads, as net::DirectStream::Allow(); where the stream
  // cannot tell it so, nothing is told.
  virtual void Allow(uint64_t /*bytes*/) {}
};

class Session {
 public:
  // Requests whose chunks may be on their way at the same time, and those that may wait for their answer. One
  // more breaks the protocol.
  static constexpr size_t kMostOpen = 4;
  static constexpr long kMostUnanswered = 16;

  // `server` must outlive the session and its answers. `permissions`: of the client.
  Session(Server& server, std::shared_ptr<SessionSink> sink, Permissions permissions = {})
      : server_(server), sink_(std::move(sink)), permissions_(std::move(permissions)) {}
  ~Session();

  // INVALID_ARGUMENT or RESOURCE_EXHAUSTED for a frame that breaks the protocol: the stream must end with it.
  // Requests that fail are answered by their `done` instead.
  absl::Status OnFrame(const v1::ClientHeader& header, net::Payload payload);
  // Where the payload of `bytes` is to be put if OnFrame() is called next, and with this header; empty:
  // anywhere.
  absl::Span<char> PlaceFor(const v1::ClientHeader& header, size_t bytes);
  // A request waits for its answer. From the thread of OnFrame().
  bool owes_answer() const { return unanswered_.use_count() > 1; }

 private:
  // A request whose chunks are arriving.
  struct Open {
    std::shared_ptr<ActiveJob> job;
    std::unique_ptr<OpenPush> push;  // one of the two
    std::unique_ptr<Accumulator> write;
    int worker = 0;                                       // whose push it is
    v1::Encoding values_encoding = v1::ENCODING_FLOAT32;  // of its answer
    TraceEvent received{};                                // name empty: not recorded
    bool initialise = false;
    bool state = false;    // the write is of values and slots
    absl::Status failure;  // the rest of the request is skipped
  };

  void BeginPush(uint64_t request_id, const v1::PushBegin& begin);
  void BeginWrite(uint64_t request_id, const v1::WriteBegin& begin);
  void Read(uint64_t request_id, const v1::ReadBegin& begin);
  absl::Status OnChunk(uint64_t request_id, const v1::Chunk& chunk, net::Payload payload);
  void End(uint64_t request_id, Open open);
  void FinishWrite(uint64_t request_id, Open open);

  // The stream pushes as this member; whether its end says that the member's process has ended.
  struct Pusher {
    int worker = 0;
    uint64_t incarnation = 0;
    int pushes = 0;
  };
  void NotePusher(const v1::PushBegin& begin);

  Server& server_;
  const std::shared_ptr<SessionSink> sink_;
  const Permissions permissions_;
  Pusher pusher_;
  std::map<uint64_t, Open> open_;  // [request_id]
  // Each answer that is still to come holds it too: so many wait.
  const std::shared_ptr<const std::monostate> unanswered_ = std::make_shared<const std::monostate>();
};

}  // namespace cairn::ps
