// How a client reaches the servers: calls, and one stream of frames per server. Transports implement this
// interface: gRPC, the data channel, and one within the process for tests.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "cairn/v1/parameter_server.pb.h"
#include "common/core/clock.h"
#include "common/net/wire/frame.h"

namespace cairn::client {

using Timeout = std::chrono::milliseconds;

// Receives what arrives on a stream. Called one call at a time, by threads of the transport or in
// ReceiveUntil(); must not block.
class FrameHandler {
 public:
  virtual ~FrameHandler() = default;
  // Each frame is one call of BeginFrame(), then one of CompleteFrame(), unless the stream ends in between.
  // `header` is valid until the end of the second call. `bytes`: the size of the payload, if the transport can
  // receive it in any memory, else 0. Returns the memory in which to receive those bytes, so that they need
  // not be copied; empty: any memory.
  virtual absl::Span<char> BeginFrame(const v1::ServerHeader& header, size_t bytes) = 0;
  // `payload` is valid during the call.
  virtual void CompleteFrame(net::Payload payload) = 0;
  // A whole frame.
  void OnFrame(const v1::ServerHeader& header, net::Payload payload) {
    BeginFrame(header, 0);
    CompleteFrame(payload);
  }
  // The last call. OK only when the client closed the stream.
  virtual void OnClosed(const absl::Status& status) = 0;
};

class FrameStream {
 public:
  // Closes the stream. Returns after OnClosed(), when the memory of sent payloads is not used any more.
  virtual ~FrameStream() = default;
  // Queues a frame; does not block. The payload's memory must stay unchanged until the request is answered or
  // the stream is destroyed. A SharedBuffer with the payload of a push must stay unchanged until the push is
  // answered or the buffer is renewed. Any thread. Frames sent after the end are dropped.
  virtual void Send(const v1::ClientHeader& header, net::FloatSpans payload) = 0;
  // Receives in the calling thread until `enough` returns true, Nudge() is called, or `deadline` has passed.
  // This saves waking another thread. `enough` is called between frames. To be called by one thread, without
  // a lock that the handler takes. Returns false if this transport receives in its own threads only.
  virtual bool ReceiveUntil(absl::FunctionRef<bool()> /*enough*/, TimePoint /*deadline*/) { return false; }
  // Makes a running ReceiveUntil() return soon. Any thread.
  virtual void Nudge() {}
};

// One server. Calls block until the answer or the timeout (DEADLINE_EXCEEDED); UNAVAILABLE while the server
// is unreachable. Thread-safe.
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
  virtual absl::Status PlaceMarker(const v1::PlaceMarkerRequest& request, v1::PlaceMarkerResponse* response,
                                   Timeout timeout) = 0;
  virtual absl::Status ChangeConfig(const v1::ChangeConfigRequest& request,
                                    v1::ChangeConfigResponse* response, Timeout timeout) = 0;
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
