// Encodes a worker's gradients with lossy encodings for gradients (such as top-k) and writes them as chunks.
// Applies error feedback: what the encoding leaves out, the residual, is added to the variable's next
// gradient, so that it arrives late instead of being lost.
//
//   BeginStep ─► Compress (each variable once) ─► EndStep
//
// A new object has residuals of zero, so they are reset when the worker joins or rejoins and when the job is
// rolled back. If a server does not count a step, the residual of its shard does not change: that gradient is
// lost, as an uncompressed one would be, and the earlier residual stays.
//
// Used by one thread, or under the caller's lock. Chunks and their payloads are valid and unchanged until the
// next BeginStep.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/types/span.h"
#include "cairn/v1/session.pb.h"
#include "client/gradients/wire_metrics.h"
#include "common/memory/aligned_buffer.h"
#include "common/net/cluster/placement.h"
#include "common/net/gradient/codec.h"

namespace cairn::client {

class CompressedGradients {
 public:
  // `layout` and `metrics` (may be null) must outlive this object. `encodings` [variable]: a variable is
  // compressed here if its encoding is one of those that are only for gradients. `topk_fraction`:
  // Job.topk_fraction.
  CompressedGradients(const net::Layout& layout, std::vector<net::VariableInfo> variables,
                      absl::Span<const v1::Encoding> encodings, double topk_fraction, WireMetrics* metrics);

  void BeginStep();
  // Encodes a variable's part of `gradients` (the gradients of all variables) into chunks. Returns false and
  // does nothing if the variable is not compressed here, or if a number is not finite: such a gradient must
  // be sent uncompressed, so that the server can name the variable in its error.
  bool Compress(int variable, absl::Span<const float> gradients);
  // Whether the variable has been compressed since BeginStep.
  bool compressed(int variable) const { return compressed_[static_cast<size_t>(variable)]; }

  struct Ready {
    v1::Chunk chunk;
    absl::Span<const float> payload;
  };
  // The chunks for a server since BeginStep, in the order of the calls of Compress().
  const std::vector<Ready>& ready(int server) const { return ready_[static_cast<size_t>(server)]; }

  // `counted` [server]: whether the step's push is in an update of that server.
  void EndStep(const std::vector<bool>& counted);

 private:
  struct Variable {
    const net::GradientCodec* codec = nullptr;  // null: not compressed here
    v1::Encoding encoding = v1::ENCODING_FLOAT32;
    int64_t offset = 0;       // in the flat buffer of all variables
    int64_t count = 0;        // elements
    int64_t most = 0;         // maximum number of elements sent
    int64_t kept_offset = 0;  // in kept_; only if the codec wants feedback
  };
  // Calls body(server, cut, server offset) for each chunk of the variable.
  template <typename Body>
  void ForEachChunk(int variable, Body body) const;
  void Encode(int variable, absl::Span<const float> whole);
  // Finds the part of `whole` that the chunks do not contain. Writes this part to `missing`, unless `missing`
  // is null, and adds the squares of `whole` and of this part to the metrics.
  void Subtract(int variable, absl::Span<const float> whole, float* missing);

  const net::Layout& layout_;
  std::vector<Variable> variables_;
  WireMetrics* const metrics_;
  // The residuals of all variables with feedback, one after another. kept_ contains the current residuals,
  // and next_ contains those that replace them if this step counts.
  AlignedBuffer kept_, next_;
  std::vector<bool> compressed_;           // [variable]
  std::vector<AlignedBuffer> rooms_;       // [server] memory for payloads
  std::vector<int64_t> used_;              // [server] floats in use
  std::vector<std::vector<Ready>> ready_;  // [server]
};

}  // namespace cairn::client
