// The loops of a convolution whose relu and 2x2 max pooling are fused, for one image, compiled for each
// instruction set.
//
// Forward computes the four sums of a window in registers and writes the largest. Backward visits only the
// place of each window that the pooling let through: a quarter of the multiplications. Filters go in blocks
// of `lanes`, and padding filters are 0.
#pragma once

#include <cstdint>

#include "kernels/cpu/vectors.h"

namespace cairn::kernels::cpu {

// One image, padding included, and the windows over it.
struct PooledShape {
  int64_t channels, blocks;  // of filters
  int64_t kernel_height, kernel_width;
  int64_t rows, columns;          // of the image
  int64_t out_height, out_width;  // pooled

  int64_t taps() const { return channels * kernel_height * kernel_width; }
  int64_t windows() const { return out_height * out_width; }
};

// A gradient that the pooling let through, and where the part of the image begins that its place sees.
struct Passed {
  int64_t corner;  // in floats
  float gradient;
};

// An image is planar, [channels, rows, columns], or blocked, [channel blocks, rows, columns, lanes];
// `offsets` [taps] are those of each tap in it. y, dy and places are [blocks, windows, lanes].
struct PooledCode {
  int64_t lanes;
  // kernel [blocks, taps, lanes], bias [blocks, lanes].
  void (*forward_planar)(const PooledShape& s, const float* image, const int64_t* offsets,
                         const float* kernel, const float* bias, float* y, Place* places);
  void (*forward_blocked)(const PooledShape& s, const float* image, const int64_t* offsets,
                          const float* kernel, const float* bias, float* y, Place* places);
  // Adds to dbias [blocks, lanes].
  void (*bias_gradient)(const PooledShape& s, const float* y, const float* dy, float* dbias);
  // Lanes along the filters, for few taps: adds to dkernel [blocks, taps, lanes], of a planar image.
  void (*kernel_gradient)(const PooledShape& s, const float* image, const int64_t* offsets, const float* y,
                          const float* dy, const Place* places, float* dkernel);
  // Lanes along a row of the kernel, of an image [rows, columns, channels]: adds to dkernel [blocks, lanes,
  // kernel_height, span], span = vectors * lanes, and, where it is not null, to dimage, of the image's shape;
  // both images are followed by `lanes` floats of slack. `kernel` is of dkernel's shape, 0 behind the
  // kernel_width * channels floats of a row. Goes through the
  // image `rows_at_once` rows of windows at a time, which shall fit the nearest cache. passed [lanes,
  // windows]: working memory.
  void (*passed_gradient)(const PooledShape& s, const float* image, const float* kernel, const float* y,
                          const float* dy, const Place* places, int64_t vectors, int64_t rows_at_once,
                          Passed* passed, float* dkernel, float* dimage);
};

namespace avx512 {
PooledCode PooledLoops();
}
namespace avx2 {
PooledCode PooledLoops();
}
namespace portable {
PooledCode PooledLoops();
}

}  // namespace cairn::kernels::cpu
