// The fields that convolutions share, as Keras names them.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/core/status.h"
#include "kernels/ops.h"
#include "kernels/window.h"
#include "nn/layer/config_reader.h"
#include "nn/layer/layer.h"
#include "nn/layers/linear_config.h"
#include "nn/layers/spatial.h"

namespace cairn::nn {

struct ConvConfig : LinearConfig {
  // If `depthwise`, each channel is a group, and `filters` is the number of filters per channel.
  bool depthwise = false;
  int64_t filters = 0, groups = 1;
  std::array<int64_t, 2> kernel_size{1, 1}, strides{1, 1}, dilation{1, 1};
  kernels::Padding padding = kernels::Padding::kValid;

  // The numbers for an input with this number of channels.
  int64_t FiltersOf(int64_t channels) const { return depthwise ? channels * filters : filters; }
  int64_t GroupsOf(int64_t channels) const { return depthwise ? channels : groups; }
  // The parameters of a convolution of `input` [n, h, w, c]. A relu activation is fused.
  kernels::Conv2DParams Params(kernels::TensorDesc input) const;
  // The variables of a convolution of images with this number of channels.
  std::vector<VariableSpec> Variables(int64_t channels, std::string kernel = "kernel") const;
};

// Reads everything but `filters` and `groups`. `kernel`: the prefix of the kernel's fields.
ConvConfig ReadConvConfig(ConfigReader& config, absl::string_view kernel = "kernel");
// Like ReadConvConfig(), for layers with one spatial axis. The first element of each pair is 1.
ConvConfig ReadConv1DConfig(ConfigReader& config, absl::string_view kernel, kernels::Padding padding);
kernels::Padding ReadPadding(ConfigReader& config);

// The shape of a batch of one image, for computing an op's output shape.
Shape BatchOfOne(const Shape& image);
// The inverse of BatchOfOne().
Shape WithoutBatch(const Shape& shape);
// The output shape, without the batch, of the op that params_of(TensorDesc) describes, for this input.
template <typename ParamsOf>
absl::StatusOr<Shape> ImageOutputShape(const Shape& input, const ParamsOf& params_of) {
  CAIRN_RETURN_IF_ERROR(CheckSpatial(input, 2));
  CAIRN_ASSIGN_OR_RETURN(const Shape output, kernels::OutputShape(params_of({.shape = BatchOfOne(input)})));
  return WithoutBatch(output);
}

// Adds a convolution of an image [h, w, c] or a sequence [w, c], and its activation. `variables`: the kernel,
// and the bias if there is one.
OnnxValue AddOnnxConv(const ConvConfig& config, absl::Span<const OnnxVariable> variables, OnnxValue input,
                      OnnxBuilder& onnx);
// Returns the attributes kernel_shape, strides and pads of sliding windows, and dilations if they are not 1.
// `spatial` has the extents of the spatial axes, to which the last elements of the other lists belong.
std::vector<OnnxAttribute> OnnxWindows(absl::Span<const int64_t> spatial,
                                       absl::Span<const int64_t> kernel_size,
                                       absl::Span<const int64_t> strides, absl::Span<const int64_t> dilation,
                                       kernels::Padding padding);

}  // namespace cairn::nn
