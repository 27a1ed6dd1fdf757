// The `activation` field of layers, and what it becomes: fused into the kernel, or an op of its own after it.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kernels/ops.h"
#include "worker/nn/config_reader.h"
#include "worker/nn/layer.h"

namespace cairn::nn {

struct ActivationSpec {
  bool softmax = false;  // over the last axis; otherwise element by element:
  kernels::ActivationParams function{};

  bool is_linear() const { return !softmax && function.kind == kernels::Activation::kLinear; }
  // max(x, 0), which the kernels of convolutions and dense layers compute by themselves.
  bool is_plain_relu() const { return !softmax && function.is_plain_relu(); }
};

// Keras' names; absent is linear. The error for an unknown one lists the supported.
ActivationSpec ReadActivation(absl::string_view field, ConfigReader& config);

// `op`, and `activation` after it, in row-major order where it needs that.
absl::StatusOr<std::unique_ptr<LayerOp>> ActivatedOp(std::unique_ptr<LayerOp> op,
                                                     const ActivationSpec& activation,
                                                     kernels::Device& device);
// The same where the op's kernel computes a plain relu by itself.
absl::StatusOr<std::unique_ptr<LayerOp>> ReluFusedOp(std::unique_ptr<LayerOp> op,
                                                     const ActivationSpec& activation,
                                                     kernels::Device& device);
// `activation` of a value of a graph.
OnnxValue OnnxActivation(const ActivationSpec& activation, OnnxValue input, OnnxBuilder& onnx);
// The activation by itself.
absl::StatusOr<std::unique_ptr<LayerOp>> MakeActivationOp(const kernels::TensorDesc& input,
                                                          const ActivationSpec& activation,
                                                          kernels::Device& device);

}  // namespace cairn::nn
