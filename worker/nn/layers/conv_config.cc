#include "worker/nn/layers/conv_config.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"

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
      absl::StrCat("input ", input.ToString(), " is no image [height, width, channels]"));
}

Shape BatchOfOne(const Shape& image) {
  Shape shape = {1};
  for (int64_t extent : image.dims()) shape.Append(extent);
  return shape;
}

Shape WithoutBatch(const Shape& shape) {
  return Shape(shape.dims().subspan(1));
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
