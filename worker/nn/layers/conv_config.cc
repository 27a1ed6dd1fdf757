#include "worker/nn/layers/conv_config.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/window.h"

namespace cairn::nn {
namespace {

ConvConfig ReadShared(ConfigReader& config) {
  ConvConfig read;
  read.padding = ReadPadding(config);
  read.activation = ReadActivation("activation", config);
  read.use_bias = config.Bool("use_bias", true);
  read.bias_initializer = config.Initializer("bias_initializer", "zeros");
  read.bias_regularizer = config.Regularizer("bias_regularizer");
  config.Refuse("data_format", "channels_last");
  config.RefuseUnlessNull({"activity_regularizer", "kernel_constraint", "bias_constraint"});
  return read;
}

}  // namespace

kernels::Conv2DParams ConvConfig::Params(kernels::TensorDesc input, int64_t filters, int64_t groups) const {
  return {.input = std::move(input),
          .filters = filters,
          .kernel_height = kernel_size[0],
          .kernel_width = kernel_size[1],
          .stride_height = strides[0],
          .stride_width = strides[1],
          .dilation_height = dilation[0],
          .dilation_width = dilation[1],
          .groups = groups,
          .padding = padding,
          .use_bias = use_bias,
          .relu = activation.is_plain_relu()};
}

kernels::Padding ReadPadding(ConfigReader& config) {
  return config.Choice("padding", {"valid", "same"}, "valid") == "same" ? kernels::Padding::kSame
                                                                        : kernels::Padding::kValid;
}

ConvConfig ReadConvConfig(ConfigReader& config) {
  ConvConfig read = ReadShared(config);
  read.kernel_size = config.PositivePair("kernel_size");
  read.strides = config.PositivePair("strides", {{1, 1}});
  read.dilation = config.PositivePair("dilation_rate", {{1, 1}});
  return read;
}

ConvConfig ReadConv1DConfig(ConfigReader& config) {
  ConvConfig read = ReadShared(config);
  read.kernel_size = {1, config.PositiveSingle("kernel_size")};
  read.strides = {1, config.PositiveSingle("strides", 1)};
  read.dilation = {1, config.PositiveSingle("dilation_rate", 1)};
  return read;
}

absl::Status CheckImage(const Shape& input) {
  if (input.rank() == 3) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("input ", input.ToString(), " is not an image [height, width, channels]"));
}

Shape BatchOfOne(const Shape& image) {
  Shape shape = {1};
  for (int64_t extent : image.dims()) shape.Append(extent);
  return shape;
}

Shape WithoutBatch(const Shape& shape) {
  return Shape(shape.dims().subspan(1));
}

std::vector<OnnxAttribute> OnnxWindows(absl::Span<const int64_t> spatial, std::array<int64_t, 2> kernel_size,
                                       std::array<int64_t, 2> strides, std::array<int64_t, 2> dilation,
                                       kernels::Padding padding) {
  std::vector<int64_t> kernel_shape, steps, gaps, before, after;
  for (size_t i = 0; i < spatial.size(); ++i) {
    const size_t axis = 2 - spatial.size() + i;  // an index into the pairs
    const kernels::Window window = kernels::MakeWindow(
        spatial[i], kernels::Dilated(kernel_size[axis], dilation[axis]), strides[axis], padding);
    kernel_shape.push_back(kernel_size[axis]);
    steps.push_back(strides[axis]);
    gaps.push_back(dilation[axis]);
    before.push_back(window.pad_before);
    after.push_back(window.pad_after);
  }
  before.insert(before.end(), after.begin(), after.end());
  std::vector<OnnxAttribute> attributes = {
      {"kernel_shape", std::move(kernel_shape)}, {"strides", std::move(steps)}, {"pads", std::move(before)}};
  if (dilation != std::array<int64_t, 2>{1, 1}) attributes.push_back({"dilations", std::move(gaps)});
  return attributes;
}

OnnxValue AddOnnxConv(const OnnxConv& conv, const ConvConfig& config, OnnxValue input, OnnxBuilder& onnx) {
  const Shape image = onnx.ShapeOf(input);
  const absl::Span<const int64_t> spatial = image.dims().first(image.dims().size() - 1);
  std::vector<OnnxAttribute> attributes =
      OnnxWindows(spatial, config.kernel_size, config.strides, config.dilation, config.padding);
  if (conv.groups != 1) attributes.push_back({"group", conv.groups});
  Shape output;
  for (size_t i = 0; i < spatial.size(); ++i) {
    const size_t axis = 2 - spatial.size() + i;
    output.Append(kernels::MakeWindow(spatial[i],
                                      kernels::Dilated(config.kernel_size[axis], config.dilation[axis]),
                                      config.strides[axis], config.padding)
                      .output);
  }
  output.Append(conv.filters);
  std::vector<std::string> inputs = {onnx.ChannelsFirst(input), conv.kernel};
  if (!conv.bias.empty()) inputs.push_back(conv.bias);
  return onnx.FromChannelsFirst(onnx.Add("Conv", std::move(inputs), std::move(attributes)), output);
}

std::vector<VariableSpec> KernelAndBias(VariableSpec kernel, int64_t filters, const ConvConfig& config) {
  std::vector<VariableSpec> variables = {std::move(kernel)};
  if (config.use_bias) {
    variables.push_back({.name = "bias",
                         .shape = {filters},
                         .initializer = config.bias_initializer,
                         .regularizer = config.bias_regularizer});
  }
  return variables;
}

}  // namespace cairn::nn
