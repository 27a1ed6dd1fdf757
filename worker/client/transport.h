// How a client reaches the servers: calls and one stream of frames per server. The seam where another
// transport goes in; gRPC is one implementation, tests have one that stays in the process.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "cairn/v1/parameter_server.pb.h"
#include "common/core/clock.h"
#include "common/net/frame.h"

namespace cairn::client {

using Timeout = std::chrono::milliseconds;

// Gets what arrives on a stream. Called by the transport's threads, or in ReceiveUntil(), one call at a time;
// must not block.
class FrameHandler {
 public:
  virtual ~FrameHandler() = default;
  // Where the payload of `bytes` that follows this header is to be put, so that it need not be copied:
  // OnFrame(), the next call, has it there. Empty: anywhere. Not asked by every transport.
  virtual absl::Span<char> PlaceFor(const v1::ServerHeader& /*header*/, size_t /*bytes*/) { return {}; }
  // `payload` is valid during the call.
  virtual void OnFrame(const v1::ServerHeader& header, net::Payload payload) = 0;
  // The last call. OK only when the client closed the stream.
  virtual void OnClosed(const absl::Status& status) = 0;
};

class FrameStream {
 public:
  // Closes, and returns after OnClosed(): no memory that was sent is referred to any more.
  virtual ~FrameStream() = default;
  // Queues a frame; does not block. The payload's memory must stay unchanged until the request is answered or
  // the stream destroyed; a push's, in a SharedBuffer, until it is answered or the buffer renewed. Any
  // thread. Frames sent after the end are dropped.
  virtual void Send(const v1::ClientHeader& header, net::FloatSpans payload) = 0;
  // Receives in the calling thread, which is spared being woken by another, until `enough`, Nudge() or
  // `deadline`; `enough` is asked between frames. One thread; it holds no lock that the handler takes. False:
  // the transport's threads see to it, not the caller.
  virtual bool ReceiveUntil(absl::FunctionRef<bool()> /*enough*/, TimePoint /*deadline*/) { return false; }
  // Who is in ReceiveUntil() returns soon. Any thread.
  virtual void Nudge() {}
};

// One server. Calls block until the answer or the timeout (DEADLINE_EXCEEDED); UNAVAILABLE while the server
// cannot be reached. Thread-safe.
class ServerStub {
 public:
  virtual ~ServerStub() = default;
  virtual absl::Status Connect(const v1::ConnectRequest& request, v1::ConnectResponse* response,
                               Timeout timeout) = 0;
  virtual absl::Status Create(const v1::CreateRequest& request, v1::CreateResponse* response,
                              Timeout timeout) = 0;
  virtual absl::Status Wait(const v1::WaitRequest& request, v1::WaitResponse* response, Timeout timeout) = 0;
  virtual absl::Status Join(const v1::JoinRequest& request, v1::JoinResponse* response, Timeout timeout) = 0;
  virtual absl::Status Heartbeat(const v1::HeartbeatRequest& request, v1::HeartbeatResponse* response,
                                 Timeout timeout) = 0;
  virtual absl::Status Leave(const v1::LeaveRequest& request, v1::LeaveResponse* response,
                             Timeout timeout) = 0;
  virtual absl::Status Mark(const v1::MarkRequest& request, v1::MarkResponse* response, Timeout timeout) = 0;
  virtual absl::Status Amend(const v1::AmendRequest& request, v1::AmendResponse* response,
                             Timeout timeout) = 0;
  virtual absl::Status Finish(const v1::FinishRequest& request, v1::FinishResponse* response,
                              Timeout timeout) = 0;
  virtual absl::Status Promote(const v1::PromoteRequest& request, v1::PromoteResponse* response,
                               Timeout timeout) = 0;

  // `handler` must outlive the stream.
  virtual std::unique_ptr<FrameStream> OpenStream(FrameHandler& handler) = 0;

  // For messages: "127.0.0.1:2222".
  virtual std::string address() const = 0;
};

}  // namespace cairn::client
