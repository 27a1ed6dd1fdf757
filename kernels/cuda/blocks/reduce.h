// Reductions over warps and blocks, in an order that only depends on the launch: the same bits every time.
#pragma once

#include <cuda_runtime.h>

#include "kernels/cuda/blocks/launch.h"

namespace cairn::kernels::cuda {

inline constexpr unsigned kAllLanes = 0xffffffffu;

struct Sum {
  template <typename T>
  __device__ T operator()(T a, T b) const {
    return a + b;
  }
};
struct Largest {
  __device__ float operator()(float a, float b) const { return a < b ? b : a; }
};

// Reduces over groups of `lanes` adjacent threads, a power of 2 up to 32; each of them gets the result. Must
// be called by whole warps.
template <typename T, typename Operation>
__device__ T ReduceLanes(int lanes, T value, const Operation& operation) {
  for (int offset = lanes / 2; offset > 0; offset /= 2) {
    value = operation(value, __shfl_xor_sync(kAllLanes, value, offset));
  }
  return value;
}

// Reduces over all threads of the block, which has 1, 2, 4, ... 32 whole warps; each thread gets the result.
template <typename T, typename Operation>
__device__ T ReduceBlock(T value, const Operation& operation) {
  __shared__ T of_warp[kWarp];
  const int warps = static_cast<int>(blockDim.x) / kWarp;
  const int thread = static_cast<int>(threadIdx.x);
  value = ReduceLanes(kWarp, value, operation);
  __syncthreads();  // all threads have read the last call's values
  if (thread % kWarp == 0) of_warp[thread / kWarp] = value;
  __syncthreads();
  return ReduceLanes(warps, of_warp[thread % warps], operation);
}

// Returns true in all threads of one block: the last of `blocks` blocks to call this. That block sees
// everything that the other blocks have written. `counter` is 0 before and after.
__device__ inline bool IsLastBlock(unsigned* counter, unsigned blocks) {
  __shared__ bool last;
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) {
    last = atomicAdd(counter, 1u) + 1 == blocks;
    if (last) *counter = 0;
  }
  __syncthreads();
  __threadfence();
  return last;
}

// Adds the sums of all threads of the grid, and returns true in the one thread whose `sum` is then the total.
// Blocks write their sums to `partials` [blocks], and the last block adds them. `counter` as above.
__device__ inline bool SumOverGrid(double& sum, double* partials, unsigned* counter) {
  sum = ReduceBlock(sum, Sum());
  if (gridDim.x > 1) {
    if (threadIdx.x == 0) partials[blockIdx.x] = sum;
    if (!IsLastBlock(counter, gridDim.x)) return false;
    sum = 0;
    for (unsigned block = threadIdx.x; block < gridDim.x; block += blockDim.x) sum += partials[block];
    sum = ReduceBlock(sum, Sum());
  }
  return threadIdx.x == 0;
}

}  // namespace cairn::kernels::cuda
