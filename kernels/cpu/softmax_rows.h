// The exponentials of one row, shared by softmax and cross entropy.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace cairn::kernels::cpu {

struct RowSum {
  float largest;  // of the row
  float sum;      // of exp(x - largest), at least 1
};

// e_j = exp(x_j - max x). `e` may be `x`.
inline RowSum ExpRow(const float* x, int64_t classes, float* e) {
  float largest = x[0];
  for (int64_t j = 1; j < classes; ++j) largest = std::max(largest, x[j]);
  float sum = 0;
  for (int64_t j = 0; j < classes; ++j) {
    e[j] = std::exp(x[j] - largest);
    sum += e[j];
  }
  return {largest, sum};
}

}  // namespace cairn::kernels::cpu
