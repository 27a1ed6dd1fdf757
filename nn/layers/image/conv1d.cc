// Conv1D, kernel [width, c / groups, filters], DepthwiseConv1D, kernel [width, c, multiplier], and SeparableConv1D,
// which mixes the channels after a depthwise convolution: convolutions of images of one row.
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/core/status.h"
#include "kernels/ops.h"
#include "kernels/window.h"
#include "nn/layers/image/conv_layer.h"
#include "nn/layers/layer_ops.h"
#include "nn/layers/layers.h"
#include "nn/layers/spatial.h"

namespace cairn::nn {
namespace {

// The output of a convolution of `input` [steps, channels].
absl::StatusOr<Shape> SequenceOutputShape(const ConvConfig& config, const Shape& input) {
  CAIRN_RETURN_IF_ERROR(CheckSpatial(input, 1));
  CAIRN_ASSIGN_OR_RETURN(const Shape output,
                         kernels::OutputShape(config.Params({.shape = {1, 1, input[0], input[1]}})));
  return Shape({output[2], output[3]});
}

std::vector<VariableSpec> SequenceVariables(const ConvConfig& config, int64_t channels,
                                            std::string kernel = "kernel") {
  return config.KernelAndBias(
      {config.kernel_size[1], config.depthwise ? channels : channels / config.groups, config.filters},
      config.FiltersOf(channels), std::move(kernel));
}

class Conv1DLayer final : public ConvLayer {
 public:
  // `causal`: the output of a step depends on no later step.
  Conv1DLayer(std::string name, std::string class_name, ConvConfig config, bool causal)
      : ConvLayer(std::move(name), std::move(class_name), std::move(config)),
        steps_before_(causal ? kernels::Dilated(config_.kernel_size[1], config_.dilation[1]) - 1 : 0) {}

  absl::StatusOr<Shape> OutputShape(absl::Span<const Shape> inputs) const override {
    CAIRN_RETURN_IF_ERROR(CheckSpatial(inputs[0], 1));
    return SequenceOutputShape(config_, {inputs[0][0] + steps_before_, inputs[0][1]});
  }

  std::vector<VariableSpec> Variables(absl::Span<const Shape> inputs) const override {
    return SequenceVariables(config_, inputs[0][1]);
  }

  bool accepts_blocked(absl::Span<const Shape>) const override { return false; }

  absl::StatusOr<std::unique_ptr<LayerOp>> MakeOp(const LayerOpParams& params,
                                                  kernels::Device& device) const override {
    CAIRN_ASSIGN_OR_RETURN(
        auto op,
        MakeRowOp(
            params.inputs[0],
            [&](const kernels::TensorDesc& row) { return MakeConvolution(params, row, device); }, device));
    return ReluFusedOp(std::move(op), config_.activation, device);
  }

  absl::StatusOr<OnnxValue> ToOnnx(absl::Span<const OnnxValue> inputs,
                                   absl::Span<const OnnxVariable> variables,
                                   OnnxBuilder& onnx) const override {
    if (steps_before_ == 0) return AddOnnxConv(config_, variables, inputs[0], onnx);
    const Shape input = onnx.ShapeOf(inputs[0]);
    const std::string padded = onnx.Add(
        "Pad", {onnx.ChannelsFirst(inputs[0]), onnx.Ints("steps_before", {0, 0, steps_before_, 0, 0, 0})});
    return AddOnnxConv(config_, variables,
                       onnx.FromChannelsFirst(padded, {input[0] + steps_before_, input[1]}), onnx);
  }

 private:
  absl::StatusOr<std::unique_ptr<LayerOp>> MakeConvolution(const LayerOpParams& params,
                                                           const kernels::TensorDesc& row,
                                                           kernels::Device& device) const {
    std::vector<ChainOp::Link> links;
    kernels::TensorDesc padded = row;
    if (steps_before_ > 0) {
      CAIRN_ASSIGN_OR_RETURN(auto padding, device.ops().MakeZeroPad2D({.input = row, .left = steps_before_}));
      padded = padding->output();
      links.push_back({std::make_unique<UnaryLayerOp>(std::move(padding), kReadsNothing)});
    }
    kernels::Conv2DParams op_params = config_.Params(padded);
    op_params.needs_input_gradient = params.needs_input_gradients || !links.empty();
    CAIRN_ASSIGN_OR_RETURN(auto op, device.ops().MakeConv2D(op_params));
    auto convolution = std::make_unique<LinearLayerOp>(std::move(op), config_.use_bias);
    if (links.empty()) return convolution;
    links.push_back({std::move(convolution), config_.use_bias ? size_t{2} : 1});
    return ChainOp::Create(std::move(links), device);
  }

  const int64_t steps_before_;  // zeros before the first step
};

class SeparableConv1DLayer final : public Layer {
 public:
  // `depthwise` has neither bias nor activation.
  SeparableConv1DLayer(std::string name, ConvConfig depthwise, ConvConfig pointwise)
      : Layer(std::move(name), "SeparableConv1D"),
        depthwise_(std::move(depthwise)),
        pointwise_(std::move(pointwise)) {}

  absl::StatusOr<Shape> OutputShape(absl::Span<const Shape> inputs) const override {
    CAIRN_ASSIGN_OR_RETURN(const Shape output, SequenceOutputShape(depthwise_, inputs[0]));
    return Shape({output[0], pointwise_.filters});
  }
  std::vector<VariableSpec> Variables(absl::Span<const Shape> inputs) const override {
    const int64_t channels = inputs[0][1];
    std::vector<VariableSpec> variables = SequenceVariables(depthwise_, channels, "depthwise_kernel");
    for (VariableSpec& variable :
         SequenceVariables(pointwise_, depthwise_.FiltersOf(channels), "pointwise_kernel")) {
      variables.push_back(std::move(variable));
    }
    return variables;
  }

  absl::StatusOr<std::unique_ptr<LayerOp>> MakeOp(const LayerOpParams& params,
                                                  kernels::Device& device) const override {
    const auto make = [&](const kernels::TensorDesc& row) -> absl::StatusOr<std::unique_ptr<LayerOp>> {
      return MakeSeparableOp(depthwise_, pointwise_, row, params.needs_input_gradients, device);
    };
    CAIRN_ASSIGN_OR_RETURN(auto op, MakeRowOp(params.inputs[0], make, device));
    return ReluFusedOp(std::move(op), pointwise_.activation, device);
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

ConvConfig ReadDepthwise1D(ConfigReader& config) {
  ConvConfig read = ReadConv1DConfig(config, "depthwise", ReadPadding(config));
  read.depthwise = true;
  read.filters = config.PositiveInt("depth_multiplier", 1);
  // Keras 2 writes these fields, which the layers inherit from Conv1D and do not use.
  config.Ignore({"groups", "kernel_initializer", "kernel_regularizer", "kernel_constraint"});
  return read;
}

}  // namespace

std::unique_ptr<Layer> MakeConv1D(std::string name, ConfigReader& config) {
  const nlohmann::json& padding = config.Raw("padding");
  const bool causal = padding.is_string() && padding == "causal";
  ConvConfig read =
      ReadConv1DConfig(config, "kernel", causal ? kernels::Padding::kValid : ReadPadding(config));
  read.filters = config.PositiveInt("filters");
  read.groups = config.PositiveInt("groups", 1);
  return std::make_unique<Conv1DLayer>(std::move(name), "Conv1D", std::move(read), causal);
}

std::unique_ptr<Layer> MakeDepthwiseConv1D(std::string name, ConfigReader& config) {
  return std::make_unique<Conv1DLayer>(std::move(name), "DepthwiseConv1D", ReadDepthwise1D(config),
                                       /*causal=*/false);
}

std::unique_ptr<Layer> MakeSeparableConv1D(std::string name, ConfigReader& config) {
  ConvConfig depthwise = ReadDepthwise1D(config), pointwise{ReadLinearConfig(config, "pointwise")};
  pointwise.filters = config.PositiveInt("filters");
  depthwise.use_bias = false;
  depthwise.activation = {};
  return std::make_unique<SeparableConv1DLayer>(std::move(name), std::move(depthwise), std::move(pointwise));
}

}  // namespace cairn::nn
