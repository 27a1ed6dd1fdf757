// The gradients of a worker that travel in an encoding for gradients alone, written as chunks, and what the
// encodings leave out: it is kept here and added to the variable's next gradient, so it comes late and is not
// lost (error feedback).
//
//   BeginStep ─► Compress (each variable once) ─► EndStep
//
// What is kept begins at zero, with each object: so when the worker joins, joins again, or the servers are
// set back. Of a step that a server did not count nothing changes for its part: its gradient is gone, as one
// that travels whole is, and what was kept before stays.
//
// One thread, or under the caller's lock. Chunks and their payloads are valid and unchanged until the next
// BeginStep.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/types/span.h"
#include "cairn/v1/session.pb.h"
#include "common/core/aligned_buffer.h"
#include "common/net/gradient/codec.h"
#include "common/net/placement.h"
#include "worker/client/wire_meters.h"

namespace cairn::client {

class CompressedGradients {
 public:
  // `layout` and `meters`, which may be null, outlive it. `encodings` [variable]: those that are not for
  // gradients alone are not its business. `topk_fraction`: Job.topk_fraction.
  CompressedGradients(const net::Layout& layout, std::vector<net::VariableInfo> variables,
                      absl::Span<const v1::Encoding> encodings, double topk_fraction, WireMeters* meters);

  void BeginStep();
  // Makes chunks of a variable's part of `gradients` (all variables'). False, and nothing is made, when the
  // variable is not its business, or when a number is not finite: so that the server says which variable it
  // is of, it must travel whole.
  bool Compress(int variable, absl::Span<const float> gradients);
  // Since BeginStep.
  bool compressed(int variable) const { return compressed_[static_cast<size_t>(variable)]; }

  struct Ready {
    v1::Chunk chunk;
    absl::Span<const float> payload;
  };
  // Since BeginStep, in the order of Compress().
  const std::vector<Ready>& ready(int server) const { return ready_[static_cast<size_t>(server)]; }

  // `counted` [server]: whether the step's push is part of an update there.
  void EndStep(const std::vector<bool>& counted);

 private:
  struct Variable {
    const net::GradientCodec* codec = nullptr;  // null: not its business
    v1::Encoding encoding = v1::ENCODING_FLOAT32;
    int64_t offset = 0;       // in all variables
    int64_t count = 0;        // elements
    int64_t most = 0;         // elements that travel
    int64_t kept_offset = 0;  // in kept_; of those with feedback
  };
  // Calls body(server, cut, server offset) for each chunk of the variable.
  template <typename Body>
  void ForEachChunk(int variable, Body body) const;
  void Encode(int variable, absl::Span<const float> whole);
  // Turns `whole` into what does not travel of it, and counts that.
  void Subtract(int variable, absl::Span<const float> whole, float* missing);

  const net::Layout& layout_;
  std::vector<Variable> variables_;
  WireMeters* const meters_;
  // Of all variables with feedback, one after another: what is kept, and what will be when this step counts.
  AlignedBuffer kept_, next_;
  std::vector<bool> compressed_;           // [variable]
  std::vector<AlignedBuffer> rooms_;       // [server] for payloads
  std::vector<int64_t> used_;              // [server] floats of it
  std::vector<std::vector<Ready>> ready_;  // [server]
};

}  // namespace cairn::client
