// The loops of max pooling over one slab, compiled for each instruction set. In every layout the channels of
// a block are adjacent, and the vector lanes run over them.
#pragma once

#include <cstdint>

#include "kernels/cpu/loops/vectors.h"

namespace cairn::kernels::cpu {

// A slab is [height, width, lanes] floats: one example and one block of channels, or all channels if they are
// not blocked. The pooled slab is [out_height, out_width, lanes].
struct PoolSlab {
  int64_t height, width, lanes;
  int64_t out_height, out_width;
  int64_t window_height, window_width, stride_height, stride_width;
  int64_t pad_top, pad_left;

  int64_t in_floats() const { return height * width * lanes; }
  int64_t out_floats() const { return out_height * out_width * lanes; }
};

struct MaxPoolCode {
  // y and argmax have the pooled shape. Of equal values, the first is the maximum. NaN counts as larger than
  // every number.
  void (*forward)(const PoolSlab& slab, const float* x, float* y, WindowIndex* argmax);
  // dx = dy at the positions of the maxima, summed where windows overlap, and 0 elsewhere.
  void (*backward)(const PoolSlab& slab, const float* dy, const WindowIndex* argmax, float* dx);
};

namespace avx512 {
MaxPoolCode MaxPoolLoops();
}
namespace avx2 {
MaxPoolCode MaxPoolLoops();
}
namespace portable {
MaxPoolCode MaxPoolLoops();
}

}  // namespace cairn::kernels::cpu
