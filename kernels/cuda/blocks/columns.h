// Sums over the columns of a matrix [rows, columns] that is read once, in two stages of fixed order: each
// block sums its slab of rows, and the last block of each tile of columns merges these partial sums.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "kernels/cuda/blocks/launch.h"
#include "kernels/cuda/blocks/reduce.h"

namespace cairn::kernels::cuda {

// The two numbers that are summed for each column.
struct Pair {
  float a, b;
};

// Adds both numbers; the row counts do not matter here.
struct MergeSums {
  static __device__ void Merge(float /*count*/, float /*share*/, Pair& into, const Pair& other) {
    into.a += other.a;
    into.b += other.b;
  }
};
// Merges means and sums of squared deviations from the mean (Chan, Golub, LeVeque, "Updating Formulae and a
// Pairwise Algorithm for Computing Sample Variances", 1979). `into` covers `count` rows; `share` is the
// fraction of the merged rows that `other` covers.
struct MergeMoments {
  static __device__ void Merge(float count, float share, Pair& into, const Pair& other) {
    const float delta = other.a - into.a;
    into.a += delta * share;
    into.b += other.b + delta * delta * count * share;
  }
};

// Merges values over `other_count` rows into values over `count` rows.
template <typename Merging, int kUnit>
__device__ void MergePairs(float& count, Pair (&into)[kUnit], float other_count, const Pair (&other)[kUnit]) {
  if (other_count == 0) return;
  const float share = other_count / (count + other_count);
#pragma unroll
  for (int k = 0; k < kUnit; ++k) Merging::Merge(count, share, into[k], other[k]);
  count += other_count;
}

// The mapping of threads to the matrix: in a block of kBlock threads, 2^shift units of kUnit adjacent columns
// are side by side, and the remaining threads are stacked in a slab of rows.
struct ColumnPlan {
  int64_t rows = 0, columns = 0;
  int64_t units = 0;      // units that make up all columns
  int64_t slab_rows = 0;  // rows per block; the last slab may have fewer
  int shift = 0;
  unsigned tiles = 1, slabs = 1;  // blocks side by side, and stacked

  // Makes a plan with about `blocks` blocks, but at least `least_rows` rows per thread.
  static ColumnPlan Make(int64_t rows, int64_t columns, int unit, int64_t blocks, int64_t least_rows) {
    ColumnPlan plan = {.rows = rows, .columns = columns, .units = columns / unit};
    while (1 << plan.shift < std::min<int64_t>(plan.units, kWarp)) ++plan.shift;
    plan.tiles = static_cast<unsigned>(CeilDiv(plan.units, int64_t{1} << plan.shift));
    const int64_t least_slab = (kBlock >> plan.shift) * least_rows;
    const int64_t slabs = std::clamp<int64_t>(CeilDiv(blocks, plan.tiles), 1, CeilDiv(rows, least_slab));
    plan.slab_rows = CeilDiv(rows, slabs);
    plan.slabs = static_cast<unsigned>(CeilDiv(rows, plan.slab_rows));
    return plan;
  }
  unsigned grid() const { return tiles * slabs; }
  // The sizes of the partial sums, and of the tiles' counters, if there are several slabs.
  int64_t partial_bytes() const { return slabs * columns * int64_t{sizeof(Pair)}; }

  __device__ unsigned tile() const { return blockIdx.x % tiles; }
  __device__ unsigned slab() const { return blockIdx.x / tiles; }
  __device__ int thread_rows() const { return kBlock >> shift; }
  __device__ int thread_row() const { return static_cast<int>(threadIdx.x) >> shift; }
  __device__ int64_t unit() const {
    return (int64_t{tile()} << shift) + (static_cast<int>(threadIdx.x) & ((1 << shift) - 1));
  }
  __device__ int64_t end_of(unsigned slab) const {
    const int64_t end = (slab + int64_t{1}) * slab_rows;
    return end < rows ? end : rows;
  }
  // This thread's rows: from first_row() to end_row(), thread_rows() apart. A thread beyond the last column
  // has no rows.
  __device__ int64_t first_row() const { return slab() * slab_rows + thread_row(); }
  __device__ int64_t end_row() const { return unit() < units ? end_of(slab()) : 0; }
};

// Calls rows(n, row) for all rows of this thread, n of them at a time, from `row` on. n is a
// std::integral_constant: kChunk while that many rows are left, then 1.
template <int kChunk, typename Rows>
__device__ void ForChunks(const ColumnPlan& plan, const Rows& rows) {
  const int64_t step = plan.thread_rows(), end = plan.end_row();
  int64_t row = plan.first_row();
  for (; row + (kChunk - 1) * step < end; row += kChunk * step) {
    rows(std::integral_constant<int, kChunk>(), row);
  }
  for (; row < end; row += step) rows(std::integral_constant<int, 1>(), row);
}

// Merges the values of stacked threads of the block; the first thread row has the result.
template <typename Merging, int kUnit>
__device__ void MergeBlock(const ColumnPlan& plan, float& count, Pair (&values)[kUnit]) {
  __shared__ float counts[kBlock / 2];
  __shared__ Pair shared[kUnit][kBlock / 2];
  const int thread = static_cast<int>(threadIdx.x);
  for (int half = kBlock / 2; half >= 1 << plan.shift; half /= 2) {
    __syncthreads();
    if (thread >= half && thread < 2 * half) {
      counts[thread - half] = count;
#pragma unroll
      for (int k = 0; k < kUnit; ++k) shared[k][thread - half] = values[k];
    }
    __syncthreads();
    if (thread < half) {
      Pair other[kUnit];
#pragma unroll
      for (int k = 0; k < kUnit; ++k) other[k] = shared[k][thread];
      MergePairs<Merging>(count, values, counts[thread], other);
    }
  }
}

// Merges the values of the threads of all slabs, `count` rows each. Returns true in the first thread row of
// the last block of each tile, which has the result. partials [slabs, columns]; counters [tiles] are 0 before
// and after. With one slab neither is used.
template <typename Merging, int kUnit>
__device__ bool MergeColumns(const ColumnPlan& plan, float& count, Pair (&values)[kUnit], Pair* partials,
                             unsigned* counters) {
  MergeBlock<Merging>(plan, count, values);
  if (plan.slabs == 1) return true;
  const bool inside = plan.unit() < plan.units;
  const int64_t column = plan.unit() * kUnit;
  if (inside && plan.thread_row() == 0) {
#pragma unroll
    for (int k = 0; k < kUnit; ++k) partials[plan.slab() * plan.columns + column + k] = values[k];
  }
  if (!IsLastBlock(&counters[plan.tile()], plan.slabs)) return false;
  count = 0;
#pragma unroll
  for (int k = 0; k < kUnit; ++k) values[k] = {0, 0};
  if (inside) {
#pragma unroll 4
    for (auto slab = static_cast<unsigned>(plan.thread_row()); slab < plan.slabs;
         slab += static_cast<unsigned>(plan.thread_rows())) {
      Pair other[kUnit];
#pragma unroll
      for (int k = 0; k < kUnit; ++k) other[k] = partials[slab * plan.columns + column + k];
      MergePairs<Merging>(count, values, static_cast<float>(plan.end_of(slab) - slab * plan.slab_rows),
                          other);
    }
  }
  MergeBlock<Merging>(plan, count, values);
  return true;
}

}  // namespace cairn::kernels::cuda
