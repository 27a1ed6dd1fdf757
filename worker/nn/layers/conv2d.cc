// Conv2D: channels last, kernel [kh, kw, c / groups, filters].
#include <utility>

#include "common/core/status.h"
#include "kernels/ops.h"
#include "kernels/window.h"
#include "worker/nn/layers/conv_config.h"
#include "worker/nn/layers/layer_ops.h"
#include "worker/nn/layers/layers.h"

namespace cairn::nn {
namespace {

class Conv2DLayer final : public Layer {
 public:
  struct Config {
    ConvConfig conv;
    int64_t filters, groups;
    InitializerSpec kernel_initializer;
    RegularizerSpec kernel_regularizer;
  };
  Conv2DLayer(std::string name, Config config)
      : Layer(std::move(name), "Conv2D"), config_(std::move(config)) {}

  absl::StatusOr<Shape> OutputShape(absl::Span<const Shape> inputs) const override {
    CAIRN_RETURN_IF_ERROR(CheckImage(inputs[0]));
    CAIRN_ASSIGN_OR_RETURN(const Shape output,
                           kernels::OutputShape(Params({.shape = BatchOfOne(inputs[0])})));
    return WithoutBatch(output);
  }

  std::vector<VariableSpec> Variables(absl::Span<const Shape> inputs) const override {
    return KernelAndBias({.name = "kernel",
                          .shape = {config_.conv.kernel_size[0], config_.conv.kernel_size[1],
                                    inputs[0][2] / config_.groups, config_.filters},
                          .initializer = config_.kernel_initializer,
                          .regularizer = config_.kernel_regularizer},
                         config_.filters, config_.conv);
  }

  bool accepts_blocked(absl::Span<const Shape>) const override { return true; }

  absl::StatusOr<std::unique_ptr<LayerOp>> MakeOp(const LayerOpParams& params,
                                                  kernels::Device& device) const override {
    kernels::Conv2DParams op_params = Params(params.inputs[0]);
    op_params.needs_input_gradient = params.needs_input_gradients;
    CAIRN_ASSIGN_OR_RETURN(auto op, device.ops().MakeConv2D(op_params));
    return ReluFusedOp(std::make_unique<LinearLayerOp>(std::move(op), config_.conv.use_bias),
                       config_.conv.activation, device);
  }

  absl::StatusOr<std::unique_ptr<LayerOp>> MakeFusedOp(const LayerOpParams& params, const Layer& next,
                                                       kernels::Device& device) const override {
    const auto windows = next.max_pooling();
    if (!windows.has_value() || !config_.conv.activation.is_plain_relu()) {
      return absl::UnimplementedError("nothing to fuse");
    }
    kernels::Conv2DParams op_params = Params(params.inputs[0]);
    op_params.needs_input_gradient = params.needs_input_gradients;
    op_params.pool_height = (*windows)[0];
    op_params.pool_width = (*windows)[1];
    CAIRN_ASSIGN_OR_RETURN(auto op, device.ops().MakeConv2D(op_params));
    return std::make_unique<LinearLayerOp>(std::move(op), config_.conv.use_bias);
  }

  absl::StatusOr<OnnxValue> ToOnnx(absl::Span<const OnnxValue> inputs,
                                   absl::Span<const OnnxVariable> variables,
                                   OnnxBuilder& onnx) const override {
    const OnnxConv conv = {.kernel = onnx.Weights(variables[0], {3, 2, 0, 1}),
                           .bias = config_.conv.use_bias ? onnx.Weights(variables[1]) : "",
                           .filters = config_.filters,
                           .groups = config_.groups};
    return OnnxActivation(config_.conv.activation, AddOnnxConv(conv, config_.conv, inputs[0], onnx), onnx);
  }

 private:
  kernels::Conv2DParams Params(kernels::TensorDesc input) const {
    return config_.conv.Params(std::move(input), config_.filters, config_.groups);
  }

  const Config config_;
};

}  // namespace

std::unique_ptr<Layer> MakeConv2D(std::string name, ConfigReader& config) {
  Conv2DLayer::Config read = {
      .conv = ReadConvConfig(config),
      .filters = config.PositiveInt("filters"),
      .groups = config.PositiveInt("groups", 1),
      .kernel_initializer = config.Initializer("kernel_initializer", "glorot_uniform"),
      .kernel_regularizer = config.Regularizer("kernel_regularizer")};
  return std::make_unique<Conv2DLayer>(std::move(name), std::move(read));
}

}  // namespace cairn::nn
