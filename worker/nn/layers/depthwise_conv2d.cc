// DepthwiseConv2D convolves every channel separately, kernel [kh, kw, c, multiplier]. SeparableConv2D then
// mixes the channels with a pointwise convolution.
#include <string>
#include <utility>

#include "common/core/status.h"
#include "kernels/ops.h"
#include "kernels/window.h"
#include "worker/nn/layers/conv_config.h"
#include "worker/nn/layers/layer_ops.h"
#include "worker/nn/layers/layers.h"

namespace cairn::nn {
namespace {

struct DepthwiseConfig {
  ConvConfig conv;
  int64_t multiplier;
  InitializerSpec initializer;
  RegularizerSpec regularizer;
};

DepthwiseConfig ReadDepthwise(ConfigReader& config) {
  DepthwiseConfig read = {.conv = ReadConvConfig(config),
                          .multiplier = config.PositiveInt("depth_multiplier", 1),
                          .initializer = config.Initializer("depthwise_initializer", "glorot_uniform"),
                          .regularizer = config.Regularizer("depthwise_regularizer")};
  config.RefuseUnlessNull({"depthwise_constraint"});
  // Keras 2 writes these fields, which the layers inherit from Conv2D and do not use.
  config.Ignore({"groups", "kernel_initializer", "kernel_regularizer", "kernel_constraint"});
  return read;
}

kernels::Conv2DParams DepthwiseParams(const DepthwiseConfig& config, kernels::TensorDesc input) {
  const int64_t channels = input.shape[3];
  return config.conv.Params(std::move(input), channels * config.multiplier, channels);
}

VariableSpec DepthwiseKernel(const char* name, const DepthwiseConfig& config, const Shape& input) {
  return {.name = name,
          .shape = {config.conv.kernel_size[0], config.conv.kernel_size[1], input[2], config.multiplier},
          .initializer = config.initializer,
          .regularizer = config.regularizer};
}

// Adds the convolution without its activation. Filter f * multiplier + m is the m-th filter of channel f.
OnnxValue AddOnnxDepthwise(const DepthwiseConfig& config, const OnnxVariable& kernel, const std::string& bias,
                           OnnxValue input, OnnxBuilder& onnx) {
  const int64_t channels = kernel.shape[2];
  const Shape by_filter = {channels * config.multiplier, 1, kernel.shape[0], kernel.shape[1]};
  return AddOnnxConv({.kernel = onnx.Weights(kernel, {2, 3, 0, 1}, by_filter),
                      .bias = bias,
                      .filters = channels * config.multiplier,
                      .groups = channels},
                     config.conv, input, onnx);
}

class DepthwiseConv2DLayer final : public Layer {
 public:
  DepthwiseConv2DLayer(std::string name, DepthwiseConfig config)
      : Layer(std::move(name), "DepthwiseConv2D"), config_(std::move(config)) {}

  absl::StatusOr<Shape> OutputShape(absl::Span<const Shape> inputs) const override {
    CAIRN_RETURN_IF_ERROR(CheckImage(inputs[0]));
    CAIRN_ASSIGN_OR_RETURN(const Shape output,
                           kernels::OutputShape(DepthwiseParams(config_, {.shape = BatchOfOne(inputs[0])})));
    return WithoutBatch(output);
  }
  std::vector<VariableSpec> Variables(absl::Span<const Shape> inputs) const override {
    return KernelAndBias(DepthwiseKernel("kernel", config_, inputs[0]), inputs[0][2] * config_.multiplier,
                         config_.conv);
  }
  bool accepts_blocked(absl::Span<const Shape>) const override { return true; }

  absl::StatusOr<std::unique_ptr<LayerOp>> MakeOp(const LayerOpParams& params,
                                                  kernels::Device& device) const override {
    kernels::Conv2DParams op_params = DepthwiseParams(config_, params.inputs[0]);
    op_params.needs_input_gradient = params.needs_input_gradients;
    CAIRN_ASSIGN_OR_RETURN(auto op, device.ops().MakeConv2D(op_params));
    return ReluFusedOp(std::make_unique<LinearLayerOp>(std::move(op), config_.conv.use_bias),
                       config_.conv.activation, device);
  }

  absl::StatusOr<OnnxValue> ToOnnx(absl::Span<const OnnxValue> inputs,
                                   absl::Span<const OnnxVariable> variables,
                                   OnnxBuilder& onnx) const override {
    const std::string bias = config_.conv.use_bias ? onnx.Weights(variables[1]) : "";
    return OnnxActivation(config_.conv.activation,
                          AddOnnxDepthwise(config_, variables[0], bias, inputs[0], onnx), onnx);
  }

 private:
  const DepthwiseConfig config_;
};

class SeparableConv2DLayer final : public Layer {
 public:
  struct Config {
    DepthwiseConfig depthwise;
    int64_t filters;
    InitializerSpec pointwise_initializer;
    RegularizerSpec pointwise_regularizer;
  };
  SeparableConv2DLayer(std::string name, Config config)
      : Layer(std::move(name), "SeparableConv2D"), config_(std::move(config)) {}

  absl::StatusOr<Shape> OutputShape(absl::Span<const Shape> inputs) const override {
    CAIRN_RETURN_IF_ERROR(CheckImage(inputs[0]));
    CAIRN_ASSIGN_OR_RETURN(const Shape output, kernels::OutputShape(DepthwiseParams(
                                                   config_.depthwise, {.shape = BatchOfOne(inputs[0])})));
    return Shape({output[1], output[2], config_.filters});
  }
  std::vector<VariableSpec> Variables(absl::Span<const Shape> inputs) const override {
    const DepthwiseConfig& depthwise = config_.depthwise;
    std::vector<VariableSpec> variables = {DepthwiseKernel("depthwise_kernel", depthwise, inputs[0])};
    for (VariableSpec& variable :
         KernelAndBias({.name = "pointwise_kernel",
                        .shape = {1, 1, inputs[0][2] * depthwise.multiplier, config_.filters},
                        .initializer = config_.pointwise_initializer,
                        .regularizer = config_.pointwise_regularizer},
                       config_.filters, depthwise.conv)) {
      variables.push_back(std::move(variable));
    }
    return variables;
  }
  bool accepts_blocked(absl::Span<const Shape>) const override { return true; }

  absl::StatusOr<std::unique_ptr<LayerOp>> MakeOp(const LayerOpParams& params,
                                                  kernels::Device& device) const override {
    const ConvConfig& conv = config_.depthwise.conv;
    kernels::Conv2DParams depthwise_params = DepthwiseParams(config_.depthwise, params.inputs[0]);
    depthwise_params.use_bias = depthwise_params.relu = false;  // they are applied after both convolutions
    depthwise_params.needs_input_gradient = params.needs_input_gradients;
    CAIRN_ASSIGN_OR_RETURN(auto depthwise, device.ops().MakeConv2D(depthwise_params));
    CAIRN_ASSIGN_OR_RETURN(auto pointwise,
                           device.ops().MakeConv2D({.input = depthwise->output(),
                                                    .filters = config_.filters,
                                                    .use_bias = conv.use_bias,
                                                    .relu = conv.activation.is_plain_relu()}));
    std::vector<ChainOp::Link> links;
    links.push_back({std::make_unique<LinearLayerOp>(std::move(depthwise), /*use_bias=*/false), 1});
    links.push_back({std::make_unique<LinearLayerOp>(std::move(pointwise), conv.use_bias),
                     size_t{1} + (conv.use_bias ? 1 : 0)});
    CAIRN_ASSIGN_OR_RETURN(auto both, ChainOp::Create(std::move(links), device));
    return ReluFusedOp(std::move(both), conv.activation, device);
  }

  absl::StatusOr<OnnxValue> ToOnnx(absl::Span<const OnnxValue> inputs,
                                   absl::Span<const OnnxVariable> variables,
                                   OnnxBuilder& onnx) const override {
    const OnnxValue depthwise = AddOnnxDepthwise(config_.depthwise, variables[0], "", inputs[0], onnx);
    const OnnxConv mixture = {.kernel = onnx.Weights(variables[1], {3, 2, 0, 1}),
                              .bias = config_.depthwise.conv.use_bias ? onnx.Weights(variables[2]) : "",
                              .filters = config_.filters};
    ConvConfig windows;
    windows.kernel_size = windows.strides = windows.dilation = {1, 1};
    return OnnxActivation(config_.depthwise.conv.activation, AddOnnxConv(mixture, windows, depthwise, onnx),
                          onnx);
  }

 private:
  const Config config_;
};

}  // namespace

std::unique_ptr<Layer> MakeDepthwiseConv2D(std::string name, ConfigReader& config) {
  return std::make_unique<DepthwiseConv2DLayer>(std::move(name), ReadDepthwise(config));
}

std::unique_ptr<Layer> MakeSeparableConv2D(std::string name, ConfigReader& config) {
  SeparableConv2DLayer::Config read = {
      .depthwise = ReadDepthwise(config),
      .filters = config.PositiveInt("filters"),
      .pointwise_initializer = config.Initializer("pointwise_initializer", "glorot_uniform"),
      .pointwise_regularizer = config.Regularizer("pointwise_regularizer")};
  config.RefuseUnlessNull({"pointwise_constraint"});
  return std::make_unique<SeparableConv2DLayer>(std::move(name), std::move(read));
}

}  // namespace cairn::nn
