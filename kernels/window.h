// Windows that slide over an image, by Keras' rules: the shapes of convolutions and poolings. The layers that
// infer shapes and every backend share them.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "common/core/shape.h"
#include "kernels/ops.h"

namespace cairn::kernels {

// One spatial axis. kValid: output = floor((input - window) / stride) + 1. kSame: output = ceil(input /
// stride). Half of the padding is before the image and half after it; if it is odd, the larger half is after
// it (TensorFlow's rule).
struct Window {
  int64_t output = 0;  // 0 when the window does not fit
  int64_t pad_before = 0, pad_after = 0;
};
Window MakeWindow(int64_t input, int64_t window, int64_t stride, Padding padding);

// The extent of a kernel whose elements are `dilation` apart.
inline int64_t Dilated(int64_t kernel, int64_t dilation) {
  return (kernel - 1) * dilation + 1;
}

// The shape [n, oh, ow, channels] of the output. INVALID_ARGUMENT for an input that is not an image, sizes
// below 1, groups that do not divide the channels, and a window larger than its input.
absl::StatusOr<Shape> OutputShape(const Conv2DParams& params);
absl::StatusOr<Shape> OutputShape(const Conv2DTransposeParams& params);
absl::StatusOr<Shape> OutputShape(const Pool2DParams& params);
// [n, windows, places, window * c].
absl::StatusOr<Shape> OutputShape(const DepthWindowsParams& params);

// The convolution that `params` transposes: it maps images of shape `output`, which is OutputShape(params),
// to images of the input's shape.
Conv2DParams TransposedConvolution(const Conv2DTransposeParams& params, const Shape& output);

}  // namespace cairn::kernels
