// Element-wise functions and exponentials over memory, compiled for each instruction set.
#pragma once

#include <cstdint>

#include "kernels/cpu/loops/vectors.h"
#include "kernels/ops.h"

namespace cairn::kernels::cpu {

struct RowSum {
  float largest;  // the largest element of the row
  float sum;      // the sum of exp(x - largest), at least 1
};

struct ActivationCode {
  // y = f(x) and dx = dy f'(x) for `count` floats, as kernels/formulas.h defines them.
  void (*forward)(const ActivationParams& f, const float* x, int64_t count, float* y);
  void (*backward)(const ActivationParams& f, const float* x, const float* dy, int64_t count, float* dx);
  // e_j = exp(x_j - max x) for a row of at least one element. `e` may alias `x`.
  RowSum (*exponentials)(const float* x, int64_t count, float* e);
};

namespace avx512 {
ActivationCode ActivationLoops();
}
namespace avx2 {
ActivationCode ActivationLoops();
}
namespace portable {
ActivationCode ActivationLoops();
}

}  // namespace cairn::kernels::cpu
