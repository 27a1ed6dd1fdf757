#include "nn/layers/image/conv_layer.h"

#include "common/core/status.h"
#include "nn/layers/layer_ops.h"

namespace cairn::nn {

absl::StatusOr<Shape> ConvLayer::OutputShape(absl::Span<const Shape> inputs) const {
  return ImageOutputShape(inputs[0],
                          [this](kernels::TensorDesc input) { return config_.Params(std::move(input)); });
}

std::vector<VariableSpec> ConvLayer::Variables(absl::Span<const Shape> inputs) const {
  return config_.Variables(inputs[0][2]);
}

absl::StatusOr<std::unique_ptr<LayerOp>> ConvLayer::MakeOp(const LayerOpParams& params,
                                                           kernels::Device& device) const {
  kernels::Conv2DParams op_params = config_.Params(params.inputs[0]);
  op_params.needs_input_gradient = params.needs_input_gradients;
  CAIRN_ASSIGN_OR_RETURN(auto op, device.ops().MakeConv2D(op_params));
  return ReluFusedOp(std::make_unique<LinearLayerOp>(std::move(op), config_.use_bias, op_params.relu),
                     config_.activation, device);
}

absl::StatusOr<OnnxValue> ConvLayer::ToOnnx(absl::Span<const OnnxValue> inputs,
                                            absl::Span<const OnnxVariable> variables,
                                            OnnxBuilder& onnx) const {
  return AddOnnxConv(config_, variables, inputs[0], onnx);
}

absl::StatusOr<std::unique_ptr<LayerOp>> MakeSeparableOp(const ConvConfig& depthwise,
                                                         const ConvConfig& pointwise,
                                                         const kernels::TensorDesc& input,
                                                         bool needs_input_gradient, kernels::Device& device) {
  kernels::Conv2DParams params = depthwise.Params(input);
  params.needs_input_gradient = needs_input_gradient;
  CAIRN_ASSIGN_OR_RETURN(auto first, device.ops().MakeConv2D(params));
  CAIRN_ASSIGN_OR_RETURN(auto second, device.ops().MakeConv2D(pointwise.Params(first->output())));
  std::vector<ChainOp::Link> links;
  links.push_back({std::make_unique<LinearLayerOp>(std::move(first), /*use_bias=*/false), 1});
  links.push_back({std::make_unique<LinearLayerOp>(std::move(second), pointwise.use_bias),
                   size_t{1} + (pointwise.use_bias ? 1 : 0)});
  return ChainOp::Create(std::move(links), device);
}

}  // namespace cairn::nn
