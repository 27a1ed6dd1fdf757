// The gradient of a depthwise convolution by its kernel, for one image and one block of channels, compiled for each
// instruction set.
//
// dkernel[i, j] += sum over the output pixels (y, x) of dy[y, x] * source[y * stride - pad + i, x * stride - pad + j],
// for all channels of the block at once. The sums of some rows of the kernel stay in registers while the image passes.
#pragma once

#include <cstdint>

#include "kernels/cpu/loops/vectors.h"

namespace cairn::kernels::cpu {

struct DepthwiseShape {
  int64_t rows, columns;          // of the source
  int64_t out_rows, out_columns;  // of the destination
  int64_t kernel_height, kernel_width;
  int64_t stride_height, stride_width;
  int64_t pad_top, pad_left;

  int64_t taps() const { return kernel_height * kernel_width; }
};

struct DepthwiseCode {
  int64_t lanes;  // channels of a block
  // source [rows, columns, lanes], dy [out_rows, out_columns, lanes]. Adds to dkernel [taps, lanes]. `zeros` is a row
  // of the source, [columns, lanes], that stands for the rows outside.
  void (*kernel_gradient)(const DepthwiseShape& s, const float* source, const float* zeros, const float* dy,
                          float* dkernel);
  // Adds the sums over `pixels` to dbias [lanes].
  void (*bias_gradient)(int64_t pixels, const float* dy, float* dbias);
};

namespace avx512 {
DepthwiseCode DepthwiseLoops();
}
namespace avx2 {
DepthwiseCode DepthwiseLoops();
}
namespace portable {
DepthwiseCode DepthwiseLoops();
}

}  // namespace cairn::kernels::cpu
