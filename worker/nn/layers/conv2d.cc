// Conv2D: channels last, kernel [kh, kw, c, filters], with its bias and relu fused.
#include <array>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/core/status.h"
#include "kernels/ops.h"
#include "kernels/window.h"
#include "worker/nn/layers/activation.h"
#include "worker/nn/layers/layers.h"

namespace cairn::nn {
namespace {

class Conv2DOp final : public LayerOp {
 public:
  Conv2DOp(std::unique_ptr<kernels::Conv2D> op, bool use_bias) : op_(std::move(op)), use_bias_(use_bias) {}

  const kernels::TensorDesc& output() const override { return op_->output(); }
  absl::Status Forward(const ForwardArgs& args) override {
    return op_->Forward(args.inputs[0], args.variables[0], use_bias_ ? args.variables[1] : nullptr,
                        args.output);
  }
  absl::Status Backward(const BackwardArgs& args) override {
    return op_->Backward(args.inputs[0], args.variables[0], args.output, args.output_gradient,
                         args.input_gradients[0], args.gradients[0], use_bias_ ? args.gradients[1] : nullptr);
  }

 private:
  const std::unique_ptr<kernels::Conv2D> op_;
  const bool use_bias_;
};

class Conv2DLayer final : public Layer {
 public:
  struct Config {
    int64_t filters;
    std::array<int64_t, 2> kernel_size, strides;
    kernels::Padding padding;
    ActivationKind activation;
    bool use_bias;
    InitializerSpec kernel_initializer, bias_initializer;
  };
  Conv2DLayer(std::string name, Config config)
      : Layer(std::move(name), "Conv2D"), config_(std::move(config)) {}

  absl::StatusOr<Shape> OutputShape(absl::Span<const Shape> inputs) const override {
    if (inputs[0].rank() != 3) {
      return absl::InvalidArgumentError(
          absl::StrCat("input ", inputs[0].ToString(), " is no image [height, width, channels]"));
    }
    CAIRN_ASSIGN_OR_RETURN(const Shape output, kernels::OutputShape(Params({.shape = WithBatch(inputs[0])})));
    return Shape({output[1], output[2], output[3]});
  }

  std::vector<VariableSpec> Variables(absl::Span<const Shape> inputs) const override {
    std::vector<VariableSpec> variables = {
        {.name = "kernel",
         .shape = {config_.kernel_size[0], config_.kernel_size[1], inputs[0][2], config_.filters},
         .initializer = config_.kernel_initializer}};
    if (config_.use_bias) {
      variables.push_back(
          {.name = "bias", .shape = {config_.filters}, .initializer = config_.bias_initializer});
    }
    return variables;
  }

  bool accepts_blocked() const override { return true; }

  absl::StatusOr<std::unique_ptr<LayerOp>> MakeOp(const LayerOpParams& params,
                                                  kernels::Device& device) const override {
    kernels::Conv2DParams op_params = Params(params.inputs[0]);
    op_params.needs_input_gradient = params.needs_input_gradients;
    CAIRN_ASSIGN_OR_RETURN(auto op, device.ops().MakeConv2D(op_params));
    return std::make_unique<Conv2DOp>(std::move(op), config_.use_bias);
  }

 private:
  static Shape WithBatch(const Shape& image) { return {1, image[0], image[1], image[2]}; }

  kernels::Conv2DParams Params(kernels::TensorDesc input) const {
    return {.input = std::move(input),
            .filters = config_.filters,
            .kernel_height = config_.kernel_size[0],
            .kernel_width = config_.kernel_size[1],
            .stride_height = config_.strides[0],
            .stride_width = config_.strides[1],
            .padding = config_.padding,
            .use_bias = config_.use_bias,
            .activation = FusedPart(config_.activation)};
  }

  const Config config_;
};

}  // namespace

std::unique_ptr<Layer> MakeConv2D(std::string name, ConfigReader& config) {
  Conv2DLayer::Config read = {
      .filters = config.PositiveInt("filters"),
      .kernel_size = config.PositivePair("kernel_size"),
      .strides = config.PositivePair("strides", {{1, 1}}),
      .padding = config.Choice("padding", {"valid", "same"}, "valid") == "same" ? kernels::Padding::kSame
                                                                                : kernels::Padding::kValid,
      .activation = ReadActivation("activation", config),
      .use_bias = config.Bool("use_bias", true),
      .kernel_initializer = config.Initializer("kernel_initializer", "glorot_uniform"),
      .bias_initializer = config.Initializer("bias_initializer", "zeros")};
  if (read.activation == ActivationKind::kSoftmax) {
    config.Fail("activation", "softmax is not supported on Conv2D, only on Dense");
  }
  if (config.PositivePair("dilation_rate", {{1, 1}}) != std::array<int64_t, 2>{1, 1}) {
    config.Fail("dilation_rate", "dilated convolutions are not supported, only 1");
  }
  config.Refuse("data_format", "channels_last");
  config.Refuse("groups", 1);
  config.RefuseUnlessNull({"kernel_regularizer", "bias_regularizer", "activity_regularizer",
                           "kernel_constraint", "bias_constraint"});
  return std::make_unique<Conv2DLayer>(std::move(name), std::move(read));
}

}  // namespace cairn::nn
