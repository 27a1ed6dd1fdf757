#include "kernels/cpu/loops/depthwise_loops.h"

namespace cairn::kernels::cpu::CAIRN_ISA {
namespace {

constexpr int kLanes = CAIRN_LANES;
using Vector = Floats<kLanes>;

// Sums that stay in registers beside a pixel of dy: of the 32 of AVX-512, or of 16.
constexpr int kSums = kLanes == 16 ? 28 : 15;

// Adds the gradients of kRows rows of the kernel, from row `first`, and of kWidth of its columns, from column `left`.
template <int kRows, int kWidth>
void GradientOfRows(const DepthwiseShape& s, const float* source, const float* zeros, const float* dy,
                    int64_t first, int64_t left, float* dkernel) {
  Vector sums[kRows][kWidth];
#pragma GCC unroll 8
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 8
    for (int j = 0; j < kWidth; ++j)
      Load(dkernel + ((first + i) * s.kernel_width + left + j) * kLanes, sums[i][j]);
  }
  // The output columns [begin, end) see no column outside.
  const int64_t shift = left - s.pad_left, last = s.columns - kWidth - shift;
  int64_t begin = shift < 0 ? (-shift + s.stride_width - 1) / s.stride_width : 0;
  int64_t end = last < 0 ? 0 : last / s.stride_width + 1;
  end = end < s.out_columns ? end : s.out_columns;
  begin = begin < end ? begin : end;
  for (int64_t row = 0; row < s.out_rows; ++row) {
    const float* from[kRows];
    for (int i = 0; i < kRows; ++i) {
      const int64_t at = row * s.stride_height - s.pad_top + first + i;
      from[i] = at >= 0 && at < s.rows ? source + at * s.columns * kLanes : zeros;
    }
    const auto add_at_edge = [&](int64_t column) __attribute__((always_inline)) {
      Vector gradient;
      Load(dy + (row * s.out_columns + column) * kLanes, gradient);
#pragma GCC unroll 8
      for (int j = 0; j < kWidth; ++j) {
        const int64_t at = column * s.stride_width + shift + j;
        if (at < 0 || at >= s.columns) continue;
#pragma GCC unroll 8
        for (int i = 0; i < kRows; ++i) {
          Vector value;
          Load(from[i] + at * kLanes, value);
          sums[i][j] += value * gradient;
        }
      }
    };
    for (int64_t column = 0; column < begin; ++column) add_at_edge(column);
    for (int64_t column = begin; column < end; ++column) {
      Vector gradient;
      Load(dy + (row * s.out_columns + column) * kLanes, gradient);
      const int64_t at = (column * s.stride_width + shift) * kLanes;
#pragma GCC unroll 8
      for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 8
        for (int j = 0; j < kWidth; ++j) {
          Vector value;
          Load(from[i] + at + j * kLanes, value);
          sums[i][j] += value * gradient;
        }
      }
    }
    for (int64_t column = end; column < s.out_columns; ++column) add_at_edge(column);
  }
#pragma GCC unroll 8
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 8
    for (int j = 0; j < kWidth; ++j)
      Store(sums[i][j], dkernel + ((first + i) * s.kernel_width + left + j) * kLanes);
  }
}

// Adds the gradients of kWidth columns of the kernel, of as many rows at once as there are registers.
template <int kWidth>
void GradientOfColumns(const DepthwiseShape& s, const float* source, const float* zeros, const float* dy,
                       int64_t left, float* dkernel) {
  // Most kernels are square.
  constexpr int kRows = kWidth == 1 ? 4 : kSums / kWidth < kWidth ? kSums / kWidth : kWidth;
  int64_t row = 0;
  for (; row + kRows <= s.kernel_height; row += kRows)
    GradientOfRows<kRows, kWidth>(s, source, zeros, dy, row, left, dkernel);
  for (; row + 2 <= s.kernel_height; row += 2)
    GradientOfRows<2, kWidth>(s, source, zeros, dy, row, left, dkernel);
  for (; row < s.kernel_height; ++row) GradientOfRows<1, kWidth>(s, source, zeros, dy, row, left, dkernel);
}

void KernelGradient(const DepthwiseShape& s, const float* source, const float* zeros, const float* dy,
                    float* dkernel) {
  switch (s.kernel_width) {
    case 3:
      return GradientOfColumns<3>(s, source, zeros, dy, 0, dkernel);
    case 5:
      return GradientOfColumns<5>(s, source, zeros, dy, 0, dkernel);
    case 7:
      return GradientOfColumns<7>(s, source, zeros, dy, 0, dkernel);
    default:
      for (int64_t left = 0; left < s.kernel_width; ++left)
        GradientOfColumns<1>(s, source, zeros, dy, left, dkernel);
  }
}

void BiasGradient(int64_t pixels, const float* dy, float* dbias) {
  Vector sum;
  Load(dbias, sum);
  for (int64_t pixel = 0; pixel < pixels; ++pixel) {
    Vector gradient;
    Load(dy + pixel * kLanes, gradient);
    sum += gradient;
  }
  Store(sum, dbias);
}

}  // namespace

DepthwiseCode DepthwiseLoops() {
  return {.lanes = kLanes, .kernel_gradient = KernelGradient, .bias_gradient = BiasGradient};
}

}  // namespace cairn::kernels::cpu::CAIRN_ISA
