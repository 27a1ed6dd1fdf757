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
  return ReluFusedOp(std::make_unique<LinearLayerOp>(std::move(op), config_.use_bias), config_.activation,
                     device);
}

absl::StatusOr<OnnxValue> ConvLayer::ToOnnx(absl::Span<const OnnxValue> inputs,
                                            absl::Span<const OnnxVariable> variables,
                                            OnnxBuilder& onnx) const {
  return AddOnnxConv(config_, variables, inputs[0], onnx);
}

}  // namespace cairn::nn
