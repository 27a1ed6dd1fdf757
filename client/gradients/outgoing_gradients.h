// The gradients of one step on their way to the servers: queues what has been announced, and sends it in the
// job's encodings. Extents that are adjacent on a server share messages.
//
// Owned by StepPushes, whose lock guards every call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/types/span.h"
#include "cairn/v1/job.pb.h"
#include "client/gradients/compressed_gradients.h"
#include "client/gradients/wire_metrics.h"
#include "client/transport/server_session.h"
#include "common/memory/aligned_buffer.h"
#include "common/net/cluster/placement.h"

namespace cairn::client {

class OutgoingGradients {
 public:
  // `layout`, `variables` and `metrics` (may be null) must outlive this object. `job`: its encodings are
  // known here and suit the variables (net::CheckGradientWire).
  OutgoingGradients(const v1::Job& job, const net::Layout& layout,
                    const std::vector<net::VariableInfo>& variables, WireMetrics* metrics);

  // `gradients`: of all variables; valid until the step has been answered by all servers or given up.
  void BeginStep(absl::Span<const float> gradients);
  // A push to this server begins: nothing is queued for it.
  void BeginPush(int server);
  // Queues the gradient of a variable, which is final. Calls send(server) for each server for which enough is
  // queued now.
  void Announce(int variable, absl::FunctionRef<void(int server)> send);
  // Queues all gradients for this server, for a push that is repeated. Those that have been compressed are
  // queued already.
  void QueueAll(int server);
  bool queued(int server) const;
  // Sends what is queued. Returns the number of payload bytes.
  int64_t Send(int server, ServerSession& session, uint64_t request_id);
  // `counted` [server]: whether the push is in an update of the server. Otherwise the residual of its shard
  // does not change.
  void EndStep(const std::vector<bool>& counted);

 private:
  struct Queue {
    std::map<v1::Encoding, std::vector<net::Extent>> extents{};
    int64_t elements = 0;        // of `extents`
    size_t compressed_sent = 0;  // how many of compressed_->ready() were sent
  };
  Queue& queue(int server) { return queues_[static_cast<size_t>(server)]; }
  void Add(const net::Extent& extent, v1::Encoding encoding);
  // The elements queued for the server; a compressed gradient counts the floats of its payload.
  int64_t QueuedElements(int server) const;

  const net::Layout& layout_;
  const std::vector<net::VariableInfo>& variables_;
  WireMetrics* const metrics_;  // may be null
  // [variable] The encoding of a gradient that is not compressed. Variables of compressed_ have float32 here:
  // it is used when one of their gradients cannot be compressed.
  std::vector<v1::Encoding> encodings_;
  std::vector<AlignedBuffer> encoded_;               // [server] gradients in 16 bits that are being sent
  std::unique_ptr<CompressedGradients> compressed_;  // null if no gradient is compressed
  std::vector<Queue> queues_;                        // [server]
  absl::Span<const float> gradients_;
};

}  // namespace cairn::client
