// The fields that convolutions share, as Keras names them.
#pragma once

#include <array>
#include <cstdint>
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

// kernel, and bias where there is one.
std::vector<VariableSpec> KernelAndBias(VariableSpec kernel, int64_t filters, const ConvConfig& config);

}  // namespace cairn::nn
