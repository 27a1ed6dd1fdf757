// How a worker reaches its right-hand neighbour, and is reached by the left-hand one. The seam where a
// transport goes in: grpc_link is one, tests have one that stays in the process.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "cairn/v1/all_reduce.pb.h"
#include "common/net/frame.h"

namespace cairn::allreduce {

// One end of a stream; frames go mostly from left to right. Destroying it ends the stream.
class RingStream {
 public:
  virtual ~RingStream() = default;
  // Queues a frame; does not block. The payload's memory stays as it is while `owner` lives. Any thread.
  // After the end nothing is sent.
  virtual void Send(const v1::RingHeader& header, net::FloatSpans payload,
                    const std::shared_ptr<const void>& owner) = 0;
  // Ends the stream soon; the other end is told why, if it can be. Any thread, does not block.
  virtual void End(const absl::Status& why) = 0;
};

// Gets what arrives at an end. Called by the transport's threads, one call at a time; must not block.
class RingHandler {
 public:
  virtual ~RingHandler() = default;
  // `payload` is valid during the call. A status that is not OK ends the stream, and the other end is told.
  virtual absl::Status OnFrame(const v1::RingHeader& header, net::Payload payload) = 0;
  // The last call.
  virtual void OnClosed(const absl::Status& status) = 0;
};

// The first of every answer to a greeting. FAILED_PRECONDITION, with both values, for a caller of another
// protocol or cluster; a hash of 0 is not compared.
absl::Status CheckCaller(const v1::GreetRequest& request, uint64_t cluster_hash);

// What a link's end tells: the other end is gone. Otherwise they are its own words.
bool IsLoss(const absl::Status& status);

// The right-hand neighbour. Any thread.
class RingPeer {
 public:
  virtual ~RingPeer() = default;
  // Blocks until the answer, or the timeout (DEADLINE_EXCEEDED); UNAVAILABLE while it cannot be reached.
  virtual absl::Status Greet(const v1::GreetRequest& request, v1::GreetResponse* response,
                             std::chrono::milliseconds timeout) = 0;
  // `greeted`: its last answer. `handler` outlives the stream, which is destroyed only after OnClosed().
  virtual std::unique_ptr<RingStream> Open(const v1::GreetResponse& greeted, RingHandler& handler) = 0;
};

// Who is reached: made before the listener that calls it, and outlives it.
class RingHost {
 public:
  virtual ~RingHost() = default;
  virtual absl::Status OnGreet(const v1::GreetRequest& request, v1::GreetResponse* response) = 0;
  // A stream has come. `back`: its end here. The handler is kept until the stream has ended.
  virtual std::shared_ptr<RingHandler> OnStream(std::shared_ptr<RingStream> back) = 0;
};

}  // namespace cairn::allreduce
