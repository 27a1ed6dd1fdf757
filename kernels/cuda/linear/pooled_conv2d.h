// A convolution with fused relu and max pooling.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "kernels/cuda/linear/convolution.h"
#include "kernels/cuda/runtime/context.h"
#include "kernels/ops.h"

namespace cairn::kernels::cuda {

// The convolution, with relu, maps an input of type `input` to images of the params' type. The output is the
// maximum of adjacent windows pool_h x pool_w, as far as they fit: [n, oh / pool_h, ow / pool_w, f].
struct PooledConvolutionParams {
  ConvolutionParams convolution;
  TensorDesc input;
  bool needs_input_gradient = true;
  int64_t pool_h = 2, pool_w = 2;

  int64_t pooled_h() const { return convolution.shape.oh / pool_h; }
  int64_t pooled_w() const { return convolution.shape.ow / pool_w; }
};

absl::StatusOr<std::unique_ptr<LinearOp>> MakePooledConv2D(Context& context,
                                                           const PooledConvolutionParams& params);

// For the first layer of a network, whose images have few channels. Uses one kernel in the forward pass and
// two in the backward pass; none of them writes an unpooled image. UNIMPLEMENTED for all but a few sizes.
absl::StatusOr<std::unique_ptr<LinearOp>> MakeFirstPooledConv2D(Context& context,
                                                                const PooledConvolutionParams& params);

}  // namespace cairn::kernels::cuda
