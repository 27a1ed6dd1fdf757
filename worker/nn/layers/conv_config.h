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

  // The parameters of a convolution of `input` [n, h, w, c]. A relu activation is fused.
  kernels::Conv2DParams Params(kernels::TensorDesc input, int64_t filters, int64_t groups) const;
};

// Reads everything but filters, groups and the kernels' initializers and regularizers.
ConvConfig ReadConvConfig(ConfigReader& config);
// Like ReadConvConfig(), for layers with one spatial axis. The first element of each pair is 1.
ConvConfig ReadConv1DConfig(ConfigReader& config);
kernels::Padding ReadPadding(ConfigReader& config);

// INVALID_ARGUMENT unless the shape is [height, width, channels].
absl::Status CheckImage(const Shape& input);
// The shape of a batch of one image, for computing an op's output shape.
Shape BatchOfOne(const Shape& image);
// The inverse of BatchOfOne().
Shape WithoutBatch(const Shape& shape);

// A convolution of an ONNX graph.
struct OnnxConv {
  std::string kernel;  // a tensor [filters, c / groups, kernel_size]
  std::string bias;    // a tensor [filters]; empty: none
  int64_t filters = 0, groups = 1;
};
// Adds a convolution with `config`'s windows, without its activation, over an image [h, w, c] or a sequence
// [w, c].
OnnxValue AddOnnxConv(const OnnxConv& conv, const ConvConfig& config, OnnxValue input, OnnxBuilder& onnx);
// Returns the attributes kernel_shape, strides and pads of sliding windows, and dilations if they are not 1.
// `spatial` has the two extents of an image, or the one extent of a sequence, which uses the second element
// of each pair.
std::vector<OnnxAttribute> OnnxWindows(absl::Span<const int64_t> spatial, std::array<int64_t, 2> kernel_size,
                                       std::array<int64_t, 2> strides, std::array<int64_t, 2> dilation,
                                       kernels::Padding padding);

// The kernel, and the bias if there is one.
std::vector<VariableSpec> KernelAndBias(VariableSpec kernel, int64_t filters, const ConvConfig& config);

}  // namespace cairn::nn
