// Which rows of an example are multiplied by MakePairDots(), and where the products are: the same for all backends.
#pragma once

#include <cmath>
#include <cstdint>

#include "absl/status/statusor.h"
#include "common/core/host_device.h"
#include "kernels/ops.h"

namespace cairn::kernels {

struct PairDots {
  int64_t batch = 0, rows = 0, width = 0, first_rows = 0;
  bool self = false, square = false;
  int64_t outputs = 0;  // per example

  // The index of the product of rows i and j among an example's outputs, -1 if (i, j) is not a pair.
  CAIRN_HOST_DEVICE int64_t IndexOf(int64_t i, int64_t j) const {
    if (first_rows > 0)
      return i < first_rows && j >= first_rows ? i * (rows - first_rows) + j - first_rows : -1;
    if (j > i || (j == i && !self)) return -1;
    if (square) return i * rows + j;
    return (self ? i * (i + 1) / 2 : i * (i - 1) / 2) + j;
  }

  // The pairs (i, j) of row i: those with `count` rows j that follow each other, from row first_rows on. Their products
  // lie beside each other, from `index` on.
  struct Row {
    int64_t count, index;
  };
  Row PairsOf(int64_t i) const {
    if (first_rows > 0) return i < first_rows ? Row{rows - first_rows, i * (rows - first_rows)} : Row{0, 0};
    return {self ? i + 1 : i, square ? i * rows : self ? i * (i + 1) / 2 : i * (i - 1) / 2};
  }
};

// INVALID_ARGUMENT for an input that is not row-major [n, rows, width], or without pairs.
absl::StatusOr<PairDots> MakePairs(const PairDotsParams& params);
// [n, outputs], or [n, first rows, other rows].
TensorDesc OutputDesc(const PairDotsParams& params, const PairDots& pairs);

// 1 / |row|, at most 1 / kNormEpsilon: keras/src/ops/nn.py, _normalize().
inline constexpr float kNormEpsilon = 1e-7f;
CAIRN_HOST_DEVICE inline float InverseNorm(float sum_of_squares) {
  const float inverse = 1.0f / std::sqrt(sum_of_squares);
  return inverse > 1.0f / kNormEpsilon ? 1.0f / kNormEpsilon : inverse;
}
// Whether InverseNorm() returned its limit, which has no gradient.
CAIRN_HOST_DEVICE inline bool IsLimited(float inverse_norm) {
  return inverse_norm >= 1.0f / kNormEpsilon;
}

}  // namespace cairn::kernels
