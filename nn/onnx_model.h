// A model's graph of ONNX operations.
#pragma once

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "nn/layer/onnx_graph.h"
#include "nn/model.h"

namespace cairn::nn {

// `parameters` are in the model's flat order. UNIMPLEMENTED naming the layer if ONNX's operations cannot
// express it.
absl::StatusOr<OnnxGraph> MakeOnnxGraph(const Model& model, absl::Span<const float> parameters);

// As above, with the values of each variable of the model, which may be a table by ids.
absl::StatusOr<OnnxGraph> MakeOnnxGraph(const Model& model, absl::Span<const OnnxVariable> variables);

}  // namespace cairn::nn
