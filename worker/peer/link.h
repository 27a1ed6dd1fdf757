// How a worker connects to its right-hand neighbour and accepts the left-hand one. Transports implement this
// interface: grpc_link, data_link, and one within the process for tests.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "cairn/v1/all_reduce.pb.h"
#include "common/net/wire/frame.h"

namespace cairn::allreduce {

// One end of a stream. Most frames go from left to right. The destructor closes the stream.
class RingStream {
 public:
  virtual ~RingStream() = default;
  // Queues a frame; does not block. The payload's memory must not change while `owner` lives. Any thread.
  // Frames sent after the end are dropped.
  virtual void Send(const v1::RingHeader& header, net::FloatSpans payload,
                    const std::shared_ptr<const void>& owner) = 0;
  // Ends the stream soon, and passes `why` to the other end if possible. Any thread; does not block.
  virtual void End(const absl::Status& why) = 0;
};

// Receives what arrives at one end. Called by threads of the transport, one call at a time; must not block.
class RingHandler {
 public:
  virtual ~RingHandler() = default;
  // `payload` is valid during the call. An error ends the stream, and the other end receives it.
  virtual absl::Status OnFrame(const v1::RingHeader& header, net::Payload payload) = 0;
  // The last call.
  virtual void OnClosed(const absl::Status& status) = 0;
};

// The first check of every handshake. FAILED_PRECONDITION, with both values, if the caller has another
// protocol version or belongs to another cluster. A hash of 0 is not compared.
absl::Status CheckCaller(const v1::GreetRequest& request, uint64_t cluster_hash);

// True if the status with which a link ended means that the other end is gone; false if the other end sent
// this status.
bool IsLoss(const absl::Status& status);

// The status that another worker has sent as a code and a message; UNKNOWN if the code is not that of an error.
absl::Status SentStatus(int code, absl::string_view message);

// The right-hand neighbour. Any thread.
class RingPeer {
 public:
  virtual ~RingPeer() = default;
  // Blocks until the answer, or the timeout (DEADLINE_EXCEEDED). UNAVAILABLE while the neighbour is
  // unreachable.
  virtual absl::Status Greet(const v1::GreetRequest& request, v1::GreetResponse* response,
                             std::chrono::milliseconds timeout) = 0;
  // `greeted`: the neighbour's last answer. `handler` must outlive the stream, which may be destroyed only
  // after OnClosed().
  virtual std::unique_ptr<RingStream> Open(const v1::GreetResponse& greeted, RingHandler& handler) = 0;
};

// The side that accepts. Must be made before the listener that calls it, and must outlive the listener.
class RingHost {
 public:
  virtual ~RingHost() = default;
  virtual absl::Status OnGreet(const v1::GreetRequest& request, v1::GreetResponse* response) = 0;
  // Accepts a stream. `back`: the local end. The handler is kept until the stream has ended.
  virtual std::shared_ptr<RingHandler> OnStream(std::shared_ptr<RingStream> back) = 0;
};

}  // namespace cairn::allreduce
