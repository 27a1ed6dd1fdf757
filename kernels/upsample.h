// Bilinear upsampling by a whole factor along one axis, the same for all backends: the centers of pixels are half
// a pixel from the edges, beyond the outermost centers the value stays (TensorFlow's rule).
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "common/core/host_device.h"
#include "common/core/shape.h"
#include "kernels/ops.h"

namespace cairn::kernels {

// An output pixel is (1 - share) * pixel `low` + share * pixel `high` of the input.
struct Tap {
  int64_t low, high;
  float share;

  // The share of input pixel `i`.
  CAIRN_HOST_DEVICE float WeightOf(int64_t i) const {
    return (i == low ? 1 - share : 0) + (i == high ? share : 0);
  }
};

CAIRN_HOST_DEVICE inline Tap TapOf(int64_t output, int64_t factor, int64_t extent) {
  // The place of the output pixel is (output + 1/2) / factor - 1/2, here in units of 1 / (2 factor).
  const int64_t place = 2 * output + 1 - factor, unit = 2 * factor;
  if (place <= 0) return {0, 0, 0};
  const int64_t low = place / unit;
  if (low >= extent - 1) return {extent - 1, extent - 1, 0};
  return {low, low + 1, static_cast<float>(place - low * unit) / static_cast<float>(unit)};
}

// The output pixels to which input pixel `i` contributes are in [FirstTap(), LastTap()).
CAIRN_HOST_DEVICE inline int64_t FirstTap(int64_t i, int64_t factor) {
  return i == 0 ? 0 : ((2 * i - 1) * factor) / 2;
}
CAIRN_HOST_DEVICE inline int64_t LastTap(int64_t i, int64_t factor, int64_t extent) {
  return i == extent - 1 ? extent * factor : ((2 * i + 3) * factor) / 2;
}

// The shape of the output, channels last. INVALID_ARGUMENT for an input that is not an image, and factors below 1.
absl::StatusOr<Shape> OutputShape(const Upsample2DParams& params);

}  // namespace cairn::kernels
