// The fields that convolutions share, as Keras names them.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/ops.h"
#include "worker/nn/config_reader.h"
#include "worker/nn/layer.h"
#include "worker/nn/layers/activation.h"

namespace cairn::nn {

struct ConvConfig {
  std::array<int64_t, 2> kernel_size{}, strides{}, dilation{};
  kernels::Padding padding = kernels::Padding::kValid;
  ActivationSpec activation;
  bool use_bias = true;
  InitializerSpec bias_initializer;
  RegularizerSpec bias_regularizer;

  // Of a convolution of `input` [n, h, w, c] with a fused relu where that is the activation.
  kernels::Conv2DParams Params(kernels::TensorDesc input, int64_t filters, int64_t groups) const;
};

// Everything but filters, groups and the kernels' initializers and regularizers.
ConvConfig ReadConvConfig(ConfigReader& config);
// The same where Keras has one spatial axis: the first of each pair is 1.
ConvConfig ReadConv1DConfig(ConfigReader& config);
kernels::Padding ReadPadding(ConfigReader& config);

// INVALID_ARGUMENT unless the shape is [height, width, channels].
absl::Status CheckImage(const Shape& input);
// A batch of one, for asking what an op makes of a shape.
Shape BatchOfOne(const Shape& image);
// Without the batch again.
Shape WithoutBatch(const Shape& shape);

// One convolution of a graph.
struct OnnxConv {
  std::string kernel;  // of [filters, c / groups, kernel_size]
  std::string bias;    // of [filters]; empty: none
  int64_t filters = 0, groups = 1;
};
// A convolution of `config`'s windows, without its activation; over [h, w, c], or over a sequence [w, c].
OnnxValue AddOnnxConv(const OnnxConv& conv, const ConvConfig& config, OnnxValue input, OnnxBuilder& onnx);
// Attributes kernel_shape, strides and pads of windows that slide over an image or a sequence of `spatial`
// extents (the last axes of the pairs); dilations too where they are not 1.
std::vector<OnnxAttribute> OnnxWindows(absl::Span<const int64_t> spatial, std::array<int64_t, 2> kernel_size,
                                       std::array<int64_t, 2> strides, std::array<int64_t, 2> dilation,
                                       kernels::Padding padding);

// kernel, and bias where there is one.
std::vector<VariableSpec> KernelAndBias(VariableSpec kernel, int64_t filters, const ConvConfig& config);

}  // namespace cairn::nn
