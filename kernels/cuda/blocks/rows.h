// Kernels over the rows of a matrix: 1 to 32 lanes of a warp, or a whole block, share a row. A kernel that
// needs a row again reads it again, from the cache.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "kernels/cuda/blocks/element.h"
#include "kernels/cuda/blocks/launch.h"
#include "kernels/cuda/blocks/pack.h"
#include "kernels/cuda/blocks/reduce.h"

namespace cairn::kernels::cuda {

template <int kUnit, typename T>
__device__ Pack<T, kUnit> Load(const T* from) {
  return *reinterpret_cast<const Pack<T, kUnit>*>(from);
}
template <int kUnit, typename T>
__device__ void Store(T* to, const Pack<T, kUnit>& pack) {
  *reinterpret_cast<Pack<T, kUnit>*>(to) = pack;
}

// Calls visit(std::integral_constant<int, kUnit>), with 16 bytes of elements if rows of this width begin at
// multiples of 16 bytes, otherwise with 1.
template <typename T, typename Visit>
auto VisitUnit(int64_t width, const Visit& visit) {
  if (width % kVector<T> == 0) return visit(std::integral_constant<int, kVector<T>>());
  return visit(std::integral_constant<int, 1>());
}

// The mapping of threads to rows. All threads of the grid take part in all rounds, because reductions need
// all threads of a warp or block; in the last round some threads have no row.
struct RowPlan {
  int64_t rows = 0;
  int64_t rounds = 1;
  int shift = 0;  // 2^shift threads share a row
  unsigned grid = 1;
  int block = kBlock;

  // A plan for `units` packs per row, with at most `most_blocks` blocks.
  static RowPlan Make(int64_t rows, int64_t units, int64_t most_blocks) {
    constexpr int64_t kMaxUnitsOfALane = 32, kWideBlock = 512;
    RowPlan plan = {.rows = rows};
    if (units > kWarp * kMaxUnitsOfALane) {
      plan.block = units > kMaxUnitsOfALane * kBlock ? int{kWideBlock} : kBlock;
      while (1 << plan.shift < plan.block) ++plan.shift;
    } else {
      while (1 << plan.shift < std::min<int64_t>(units, kWarp)) ++plan.shift;
    }
    const int64_t rows_of_block = plan.block >> plan.shift;
    plan.grid = static_cast<unsigned>(std::clamp<int64_t>(CeilDiv(rows, rows_of_block), 1, most_blocks));
    plan.rounds = CeilDiv(rows, rows_of_block * plan.grid);
    return plan;
  }

  __device__ int64_t Row(int64_t round) const {
    return (round * CAIRN_GLOBAL_THREADS + CAIRN_GLOBAL_THREAD) >> shift;
  }
  __device__ int threads() const { return 1 << shift; }
  __device__ int rank() const { return static_cast<int>(threadIdx.x) & (threads() - 1); }

  // Reduces over the threads that share a row; each of them gets the result.
  template <typename T, typename Operation>
  __device__ T Reduce(T value, const Operation& operation) const {
    return threads() > kWarp ? ReduceBlock(value, operation) : ReduceLanes(threads(), value, operation);
  }

  // Calls visit(j) for this thread's packs; the width is a multiple of kUnit.
  template <int kUnit, typename Visit>
  __device__ void ForEach(int64_t width, const Visit& visit) const {
    for (int64_t j = int64_t{rank()} * kUnit; j < width; j += int64_t{threads()} * kUnit) visit(j);
  }
};

}  // namespace cairn::kernels::cuda
