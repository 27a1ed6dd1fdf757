// Loops over the columns of a row, and over rows that lie anywhere in memory. Private to embedding.
//
// As in optim/simd/loop.h: IEEE arithmetic, element by element, without contraction to fused multiply-adds, so that
// every instruction set gives the same bits.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "absl/types/span.h"
#include "optim/simd/loop.h"

// Before a loop of few iterations that should become vector instructions: GCC 12 would unroll it first, and then
// vectorise it badly or not at all.
#if defined(__clang__)
#define CAIRN_KEEP_LOOP
#else
#define CAIRN_KEEP_LOOP _Pragma("GCC unroll 1")
#endif

namespace cairn::embedding {

// Calls element(j) for each j in [0, dim), in no particular order. Rows of 16 columns or multiples of it need no loop
// over single columns.
template <typename Element>
__attribute__((always_inline)) inline void ForEachColumn(int64_t dim, Element element) {
  constexpr int64_t kBlock = 16;
  int64_t begin = 0;
  for (; begin + kBlock <= dim; begin += kBlock) {
    CAIRN_INDEPENDENT_ITERATIONS
    CAIRN_KEEP_LOOP
    for (int64_t j = begin; j < begin + kBlock; ++j) element(j);
  }
  CAIRN_INDEPENDENT_ITERATIONS
  for (int64_t j = begin; j < dim; ++j) element(j);
}

// The sum of squares of `values` [dim], in an order that depends on dim alone.
__attribute__((always_inline)) inline float SumOfSquares(const float* values, int64_t dim) {
  typedef float Four __attribute__((vector_size(16)));
  const auto square = [values](int64_t j) CAIRN_INLINE_LAMBDA {
    Four four;
    std::memcpy(&four, values + j, sizeof(four));
    return four * four;
  };
  Four a{}, b{}, c{}, d{};
  int64_t j = 0;
  for (; j + 16 <= dim; j += 16) {
    a += square(j);
    b += square(j + 4);
    c += square(j + 8);
    d += square(j + 12);
  }
  for (; j + 4 <= dim; j += 4) a += square(j);
  float tail = 0;
  for (; j < dim; ++j) tail += values[j] * values[j];
  const Four sums = (a + b) + (c + d);
  return (sums[0] + sums[2]) + (sums[1] + sums[3]) + tail;
}

// Rows to update. None occurs twice.
struct RowBatch {
  absl::Span<float* const> rows;  // each [floats]: dim values, then the slots
  const float* gradients;         // [rows] [dim]
};

// Asks for the cache lines of a row that will be written.
__attribute__((always_inline)) inline void PrefetchRow(const float* row, int64_t floats) {
  constexpr int64_t kLine = 64 / sizeof(float);
  for (int64_t f = 0; f < floats; f += kLine) __builtin_prefetch(row + f, 1);
  __builtin_prefetch(row + floats - 1, 1);  // a row may begin anywhere in a line
}

// Calls update(row, gradient of the row) for each row in order, and prefetches the next ones: about 4 KiB ahead, since
// a core has some tens of misses in flight. `update` is declared CAIRN_INLINE_LAMBDA and captures by value.
template <typename Update>
void ForEachRow(optim::Isa isa, const RowBatch& batch, int64_t dim, int64_t floats, Update update) {
  const auto count = static_cast<int64_t>(batch.rows.size());
  float* const* rows = batch.rows.data();
  const float* gradients = batch.gradients;
  const int64_t ahead = std::clamp<int64_t>(1024 / floats, 2, 24);
  optim::RunOn(isa, [=]() CAIRN_INLINE_LAMBDA {
    for (int64_t i = 0; i < std::min(ahead, count); ++i) PrefetchRow(rows[i], floats);
    for (int64_t i = 0; i < count; ++i) {
      if (i + ahead < count) PrefetchRow(rows[i + ahead], floats);
      update(rows[i], gradients + i * dim);
    }
  });
}

}  // namespace cairn::embedding
