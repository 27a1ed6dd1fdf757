// The loops of a convolution with fused relu and 2x2 max pooling, for one image, compiled for each
// instruction set.
//
// The forward loop computes the four sums of a window in registers and writes the largest. The backward loop
// visits only the position that the pooling selected in each window, which takes a quarter of the
// multiplications. Filters are processed in blocks of `lanes`; padding filters are 0.
#pragma once

#include <cstdint>

#include "kernels/cpu/loops/vectors.h"

namespace cairn::kernels::cpu {

// One image, padding included, and the windows over it.
struct PooledShape {
  int64_t channels, blocks;  // channels of the image, blocks of filters
  int64_t kernel_height, kernel_width;
  int64_t rows, columns;          // size of the image
  int64_t out_height, out_width;  // size of the pooled image

  int64_t taps() const { return channels * kernel_height * kernel_width; }
  int64_t windows() const { return out_height * out_width; }
};

// The gradient of a selected position, and the beginning of the part of the image from which that position
// was computed.
struct Passed {
  int64_t corner;  // offset in floats
  float gradient;
};

// An image is planar, [channels, rows, columns], or blocked, [channel blocks, rows, columns, lanes].
// `offsets` [taps] are the offsets of the taps in the image. y, dy and argmax are [blocks, windows, lanes].
struct PooledCode {
  int64_t lanes;
  // kernel [blocks, taps, lanes]; bias [blocks, lanes].
  void (*forward_planar)(const PooledShape& s, const float* image, const int64_t* offsets,
                         const float* kernel, const float* bias, float* y, WindowIndex* argmax);
  void (*forward_blocked)(const PooledShape& s, const float* image, const int64_t* offsets,
                          const float* kernel, const float* bias, float* y, WindowIndex* argmax);
  // Adds to dbias [blocks, lanes].
  void (*bias_gradient)(const PooledShape& s, const float* y, const float* dy, float* dbias);
  // With lanes along the filters, for few taps and a planar image: adds to dkernel [blocks, taps, lanes].
  void (*kernel_gradient)(const PooledShape& s, const float* image, const int64_t* offsets, const float* y,
                          const float* dy, const WindowIndex* argmax, float* dkernel);
  // With lanes along a row of the kernel, for an image [rows, columns, channels]: adds to dkernel [blocks,
  // lanes, kernel_height, span], where span = vectors * lanes, and also to dimage, which has the image's
  // shape, unless dimage is null. Both images are followed by `lanes` floats of slack. `kernel` has dkernel's
  // shape, with zeros after the kernel_width * channels floats of a row. Processes `rows_at_once` rows of
  // windows at a time; the part of the image that they cover should fit the first-level cache. passed [lanes,
  // windows] is working memory.
  void (*passed_gradient)(const PooledShape& s, const float* image, const float* kernel, const float* y,
                          const float* dy, const WindowIndex* argmax, int64_t vectors, int64_t rows_at_once,
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
