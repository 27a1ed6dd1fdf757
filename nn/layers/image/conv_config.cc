#include "nn/layers/image/conv_config.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/window.h"

namespace cairn::nn {
namespace {

ConvConfig ReadShared(ConfigReader& config, absl::string_view kernel, kernels::Padding padding) {
  ConvConfig read{ReadLinearConfig(config, kernel)};
  read.padding = padding;
  config.Refuse("data_format", "channels_last");
  return read;
}

// The kernel as a tensor [filters, c / groups, kernel_size].
std::string OnnxKernel(const ConvConfig& config, const OnnxVariable& kernel, OnnxBuilder& onnx) {
  const Shape& shape = kernel.shape;
  if (shape.rank() == 3) {
    if (!config.depthwise) return onnx.Weights(kernel, {2, 1, 0});
    return onnx.Weights(kernel, {1, 2, 0}, {shape[1] * shape[2], 1, shape[0]});
  }
  if (!config.depthwise) return onnx.Weights(kernel, {3, 2, 0, 1});
  // Filter c * filters + m of the tensor is the m-th filter of channel c.
  return onnx.Weights(kernel, {2, 3, 0, 1}, {shape[2] * shape[3], 1, shape[0], shape[1]});
}

}  // namespace

kernels::Conv2DParams ConvConfig::Params(kernels::TensorDesc input) const {
  const int64_t channels = input.shape[3];
  return {.input = std::move(input),
          .filters = FiltersOf(channels),
          .kernel_height = kernel_size[0],
          .kernel_width = kernel_size[1],
          .stride_height = strides[0],
          .stride_width = strides[1],
          .dilation_height = dilation[0],
          .dilation_width = dilation[1],
          .groups = GroupsOf(channels),
          .padding = padding,
          .use_bias = use_bias,
          .relu = activation.is_plain_relu()};
}

std::vector<VariableSpec> ConvConfig::Variables(int64_t channels, std::string kernel) const {
  return KernelAndBias({kernel_size[0], kernel_size[1], depthwise ? channels : channels / groups, filters},
                       FiltersOf(channels), std::move(kernel));
}

kernels::Padding ReadPadding(ConfigReader& config) {
  return config.Choice("padding", {"valid", "same"}, "valid") == "same" ? kernels::Padding::kSame
                                                                        : kernels::Padding::kValid;
}

ConvConfig ReadConvConfig(ConfigReader& config, absl::string_view kernel) {
  ConvConfig read = ReadShared(config, kernel, ReadPadding(config));
  read.kernel_size = config.PositivePair("kernel_size");
  read.strides = config.PositivePair("strides", {{1, 1}});
  read.dilation = config.PositivePair("dilation_rate", {{1, 1}});
  return read;
}

ConvConfig ReadConv1DConfig(ConfigReader& config, absl::string_view kernel, kernels::Padding padding) {
  ConvConfig read = ReadShared(config, kernel, padding);
  read.kernel_size = {1, config.PositiveSingle("kernel_size")};
  read.strides = {1, config.PositiveSingle("strides", 1)};
  read.dilation = {1, config.PositiveSingle("dilation_rate", 1)};
  return read;
}

Shape BatchOfOne(const Shape& image) {
  Shape shape = {1};
  for (int64_t extent : image.dims()) shape.Append(extent);
  return shape;
}

Shape WithoutBatch(const Shape& shape) {
  return Shape(shape.dims().subspan(1));
}

std::vector<OnnxAttribute> OnnxWindows(absl::Span<const int64_t> spatial,
                                       absl::Span<const int64_t> kernel_size,
                                       absl::Span<const int64_t> strides, absl::Span<const int64_t> dilation,
                                       kernels::Padding padding) {
  std::vector<int64_t> kernel_shape, steps, gaps, before, after;
  for (size_t i = 0; i < spatial.size(); ++i) {
    const size_t axis = kernel_size.size() - spatial.size() + i;
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
  if (std::any_of(gaps.begin(), gaps.end(), [](int64_t gap) { return gap != 1; })) {
    attributes.push_back({"dilations", std::move(gaps)});
  }
  return attributes;
}

OnnxValue AddOnnxConv(const ConvConfig& config, absl::Span<const OnnxVariable> variables, OnnxValue input,
                      OnnxBuilder& onnx) {
  std::vector<std::string> inputs = {OnnxKernel(config, variables[0], onnx)};
  if (config.use_bias) inputs.push_back(onnx.Weights(variables[1]));
  inputs.insert(inputs.begin(), onnx.ChannelsFirst(input));
  const Shape image = onnx.ShapeOf(input);
  const int64_t channels = image[image.rank() - 1], groups = config.GroupsOf(channels);
  const absl::Span<const int64_t> spatial = image.dims().first(image.dims().size() - 1);
  std::vector<OnnxAttribute> attributes =
      OnnxWindows(spatial, config.kernel_size, config.strides, config.dilation, config.padding);
  if (groups != 1) attributes.push_back({"group", groups});
  Shape output;
  for (size_t i = 0; i < spatial.size(); ++i) {
    const size_t axis = 2 - spatial.size() + i;
    output.Append(kernels::MakeWindow(spatial[i],
                                      kernels::Dilated(config.kernel_size[axis], config.dilation[axis]),
                                      config.strides[axis], config.padding)
                      .output);
  }
  output.Append(config.FiltersOf(channels));
  const std::string sum = onnx.Add("Conv", std::move(inputs), std::move(attributes));
  return OnnxActivation(config.activation, onnx.FromChannelsFirst(sum, output), onnx);
}

}  // namespace cairn::nn
