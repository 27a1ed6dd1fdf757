// A layer of one convolution: Conv1D, Conv2D and DepthwiseConv2D.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "nn/layer/layer.h"
#include "nn/layers/image/conv_config.h"

namespace cairn::nn {

// Over images, channels last. The kernel is [kh, kw, c / groups, filters], or [kh, kw, c, multiplier].
class ConvLayer : public Layer {
 public:
  ConvLayer(std::string name, std::string class_name, ConvConfig config)
      : Layer(std::move(name), std::move(class_name)), config_(std::move(config)) {}

  absl::StatusOr<Shape> OutputShape(absl::Span<const Shape> inputs) const override;
  std::vector<VariableSpec> Variables(absl::Span<const Shape> inputs) const override;
  bool accepts_blocked(absl::Span<const Shape>) const override { return true; }
  absl::StatusOr<std::unique_ptr<LayerOp>> MakeOp(const LayerOpParams& params,
                                                  kernels::Device& device) const override;
  absl::StatusOr<OnnxValue> ToOnnx(absl::Span<const OnnxValue> inputs,
                                   absl::Span<const OnnxVariable> variables,
                                   OnnxBuilder& onnx) const override;

 protected:
  const ConvConfig config_;
};

// A depthwise convolution of `input` [n, h, w, c], without bias and activation, then a pointwise one and its activation
// if that is a relu.
absl::StatusOr<std::unique_ptr<LayerOp>> MakeSeparableOp(const ConvConfig& depthwise,
                                                         const ConvConfig& pointwise,
                                                         const kernels::TensorDesc& input,
                                                         bool needs_input_gradient, kernels::Device& device);

}  // namespace cairn::nn
