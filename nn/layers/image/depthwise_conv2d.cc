// DepthwiseConv2D convolves every channel separately, kernel [kh, kw, c, multiplier]. SeparableConv2D then
// mixes the channels with a pointwise convolution.
#include <utility>

#include "common/core/status.h"
#include "kernels/ops.h"
#include "nn/layers/image/conv_layer.h"
#include "nn/layers/layer_ops.h"
#include "nn/layers/layers.h"

namespace cairn::nn {
namespace {

ConvConfig ReadDepthwise(ConfigReader& config) {
  ConvConfig read = ReadConvConfig(config, "depthwise");
  read.depthwise = true;
  read.filters = config.PositiveInt("depth_multiplier", 1);
  // Keras 2 writes these fields, which the layers inherit from Conv2D and do not use.
  config.Ignore({"groups", "kernel_initializer", "kernel_regularizer", "kernel_constraint"});
  return read;
}

class SeparableConv2DLayer final : public Layer {
 public:
  // `depthwise` has neither bias nor activation.
  SeparableConv2DLayer(std::string name, ConvConfig depthwise, ConvConfig pointwise)
      : Layer(std::move(name), "SeparableConv2D"),
        depthwise_(std::move(depthwise)),
        pointwise_(std::move(pointwise)) {}

  absl::StatusOr<Shape> OutputShape(absl::Span<const Shape> inputs) const override {
    CAIRN_ASSIGN_OR_RETURN(const Shape output, ImageOutputShape(inputs[0], [this](kernels::TensorDesc input) {
                             return depthwise_.Params(std::move(input));
                           }));
    return Shape({output[0], output[1], pointwise_.filters});
  }
  std::vector<VariableSpec> Variables(absl::Span<const Shape> inputs) const override {
    const int64_t channels = inputs[0][2];
    std::vector<VariableSpec> variables = depthwise_.Variables(channels, "depthwise_kernel");
    for (VariableSpec& variable : pointwise_.Variables(depthwise_.FiltersOf(channels), "pointwise_kernel")) {
      variables.push_back(std::move(variable));
    }
    return variables;
  }
  bool accepts_blocked(absl::Span<const Shape>) const override { return true; }

  absl::StatusOr<std::unique_ptr<LayerOp>> MakeOp(const LayerOpParams& params,
                                                  kernels::Device& device) const override {
    CAIRN_ASSIGN_OR_RETURN(auto both, MakeSeparableOp(depthwise_, pointwise_, params.inputs[0],
                                                      params.needs_input_gradients, device));
    return ReluFusedOp(std::move(both), pointwise_.activation, device);
  }

  absl::StatusOr<OnnxValue> ToOnnx(absl::Span<const OnnxValue> inputs,
                                   absl::Span<const OnnxVariable> variables,
                                   OnnxBuilder& onnx) const override {
    const OnnxValue depthwise = AddOnnxConv(depthwise_, variables.first(1), inputs[0], onnx);
    return AddOnnxConv(pointwise_, variables.subspan(1), depthwise, onnx);
  }

 private:
  const ConvConfig depthwise_, pointwise_;
};

}  // namespace

std::unique_ptr<Layer> MakeDepthwiseConv2D(std::string name, ConfigReader& config) {
  return std::make_unique<ConvLayer>(std::move(name), "DepthwiseConv2D", ReadDepthwise(config));
}

std::unique_ptr<Layer> MakeSeparableConv2D(std::string name, ConfigReader& config) {
  ConvConfig depthwise = ReadDepthwise(config), pointwise{ReadLinearConfig(config, "pointwise")};
  pointwise.filters = config.PositiveInt("filters");
  depthwise.use_bias = false;
  depthwise.activation = {};
  return std::make_unique<SeparableConv2DLayer>(std::move(name), std::move(depthwise), std::move(pointwise));
}

}  // namespace cairn::nn
