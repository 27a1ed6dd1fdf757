// The `activation` field of layers, and its implementation: fused into the layer's kernel, or as a separate
// op.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kernels/ops.h"
#include "nn/layer/config_reader.h"
#include "nn/layer/layer.h"

namespace cairn::nn {

struct ActivationSpec {
  bool softmax = false;  // over the last axis; otherwise `function`, element by element
  kernels::ActivationParams function{};

  bool is_linear() const { return !softmax && function.kind == kernels::Activation::kLinear; }
  // max(x, 0), which the kernels of convolutions and dense layers can compute.
  bool is_plain_relu() const { return !softmax && function.is_plain_relu(); }
};

// Reads Keras' names; absent means linear. The error for an unknown name lists the supported ones.
ActivationSpec ReadActivation(absl::string_view field, ConfigReader& config);

// `op` followed by `activation`, with a reorder to row-major between them if necessary.
absl::StatusOr<std::unique_ptr<LayerOp>> ActivatedOp(std::unique_ptr<LayerOp> op,
                                                     const ActivationSpec& activation,
                                                     kernels::Device& device);
// Like ActivatedOp(), for an op whose kernel already applies `activation` if that is a plain relu.
absl::StatusOr<std::unique_ptr<LayerOp>> ReluFusedOp(std::unique_ptr<LayerOp> op,
                                                     const ActivationSpec& activation,
                                                     kernels::Device& device);
// Adds `activation` of `input` to the graph.
OnnxValue OnnxActivation(const ActivationSpec& activation, OnnxValue input, OnnxBuilder& onnx);
// An op of the activation alone.
absl::StatusOr<std::unique_ptr<LayerOp>> MakeActivationOp(const kernels::TensorDesc& input,
                                                          const ActivationSpec& activation,
                                                          kernels::Device& device);

}  // namespace cairn::nn
