// How a client reaches the servers: unary calls, and one stream of frames per server. gRPC carries both, the
// data channel only streams; tests have a transport within the process.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "cairn/v1/parameter_server.pb.h"
#include "common/core/clock.h"
#include "common/net/wire/frame.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/message.h"

namespace cairn::client {

using Timeout = std::chrono::milliseconds;
// For a call that a server answers at once.
inline constexpr Timeout kCallTimeout = std::chrono::seconds(10);

// Polled ten times a second by the thread that waits; true ends the wait with CANCELLED. Null: nothing ends it.
using StopCheck = std::function<bool()>;
inline constexpr Timeout kStopCheckEvery = std::chrono::milliseconds(100);
// For several waits: stays true once `check` was.
StopCheck Latched(StopCheck check);

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

// The unary calls of the service v1.ParameterServer to one server. Thread-safe.
class ControlStub {
 public:
  virtual ~ControlStub() = default;
  // Makes the call `method`, whose request and response have the types of `request` and `response`. Blocks
  // until the answer, the timeout (DEADLINE_EXCEEDED) or `stopped`; UNAVAILABLE while the server is unreachable.
  virtual absl::Status Call(const google::protobuf::MethodDescriptor& method,
                            const google::protobuf::Message& request, google::protobuf::Message* response,
                            Timeout timeout, const StopCheck& stopped) = 0;
};

// Opens the streams to one server, which carry pushes and reads. Thread-safe.
class StreamFactory {
 public:
  virtual ~StreamFactory() = default;
  // `handler` must outlive the stream. Waits for a server for some seconds, unless `stopped`: then nothing may
  // arrive on the stream.
  virtual std::unique_ptr<FrameStream> Open(FrameHandler& handler, const StopCheck& stopped) = 0;
  // Takes the server's answer to Connect, which announces the address of its data channel.
  virtual void Learn(const v1::ConnectResponse& /*response*/) {}
};

// One server: its calls and its streams. Thread-safe.
class ServerStub {
 public:
  struct Parts {
    std::string address;  // for messages: "127.0.0.1:2222"
    std::unique_ptr<ControlStub> control;
    std::unique_ptr<StreamFactory> streams;
  };
  explicit ServerStub(Parts parts) : parts_(std::move(parts)) {}

  // Makes the call of v1.ParameterServer that takes this request: Join for a v1::JoinRequest. `response` must
  // be of the type that the call returns. Blocks and fails as ControlStub::Call() does.
  absl::Status Call(const google::protobuf::Message& request, google::protobuf::Message* response,
                    Timeout timeout, const StopCheck& stopped = {});
  StreamFactory& streams() { return *parts_.streams; }
  const std::string& address() const { return parts_.address; }
  // Gives up the parts; no call may follow.
  Parts Release() && { return std::move(parts_); }

 private:
  Parts parts_;
};

}  // namespace cairn::client
