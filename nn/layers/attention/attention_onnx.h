// Attention in inference as ONNX operations, with a matrix of all scores.
#pragma once

#include <string>
#include <vector>

#include "absl/types/span.h"
#include "kernels/attention.h"
#include "nn/layer/onnx_graph.h"
#include "nn/layers/attention/attention_call.h"

namespace cairn::nn {

struct OnnxProjections {
  std::string q, k, v;  // [batch, length, heads * width]
};

// Returns names of masks that broadcast to [batch, heads, queries, keys]: 0 for pairs that do not see each
// other.
std::vector<std::string> MasksInOnnx(const AttentionCall& call, absl::Span<const OnnxValue> inputs,
                                     OnnxBuilder& onnx);

// The same for one mask, [queries] or [keys].
std::string QueryMaskInOnnx(OnnxValue mask, OnnxBuilder& onnx);
std::string KeyMaskInOnnx(OnnxValue mask, OnnxBuilder& onnx);

// Returns [batch, queries, heads * value_width]. `params.batch` is not used.
std::string AttentionInOnnx(const kernels::AttentionParams& params, const OnnxProjections& inputs,
                            std::vector<std::string> masks, OnnxBuilder& onnx);

}  // namespace cairn::nn
