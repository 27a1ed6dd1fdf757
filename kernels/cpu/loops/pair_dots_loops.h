// The loops of the dot products of pairs of rows (kernels/pair_dots.h), compiled for each instruction set without fused
// multiply-adds. The sum of a product has four parts, of every fourth column, which are added in their order; columns
// after the last four belong to the first part. So all instruction sets give the same bits.
#pragma once

#include <cstdint>

#include "kernels/cpu/loops/vectors.h"

namespace cairn::kernels::cpu {

struct WeightedRow {
  const float* row;
  float weight;
};

struct PairDotsCode {
  // The number of rows in a group of packed rows.
  int64_t lanes;
  // Packs `count` rows of `width` floats for products(): [groups][width][lanes]. What the last group lacks is not
  // written.
  void (*pack)(const float* rows, int64_t count, int64_t width, float* packed);
  // y[j] = row * row j of the packed ones, for the first `count` of them.
  void (*products)(const float* row, const float* packed, int64_t count, int64_t width, float* y);
  // y[j] = rows[j] * rows[j] for `count` rows.
  void (*squares)(const float* rows, int64_t count, int64_t width, float* y);
  // sum [width] = the sum of `count` weighted rows, added in their order.
  void (*add)(const WeightedRow* terms, int64_t count, int64_t width, float* sum);
};

namespace avx512 {
PairDotsCode PairDotsLoops();
}
namespace avx2 {
PairDotsCode PairDotsLoops();
}
namespace portable {
PairDotsCode PairDotsLoops();
}

}  // namespace cairn::kernels::cpu
