// Runs CUDA kernels on the CPU, so that their arithmetic, addresses and barriers are tested without a GPU and
// under AddressSanitizer. Blocks run one after the other, and so do the threads of a block, each until it
// waits for others. Undefined behaviour that can be detected here ends the program with a message: a barrier
// that only part of a block reaches, a shuffle among lanes that never meet.
//
// It does not find races between threads of a block, or a dependence on the order of blocks.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/functional/function_ref.h"

struct uint3 {
  unsigned x = 0, y = 0, z = 0;
};
struct dim3 {
  unsigned x = 1, y = 1, z = 1;
  constexpr dim3(unsigned x_extent = 1, unsigned y_extent = 1, unsigned z_extent = 1)
      : x(x_extent), y(y_extent), z(z_extent) {}
};

extern constinit thread_local uint3 threadIdx, blockIdx;
extern constinit thread_local dim3 blockDim, gridDim;

namespace cairn::cuda_on_cpu {

inline constexpr unsigned kWarp = 32;

// Calls `thread` for each thread of each block. Returns when all are done. Must not be called from a kernel.
void Run(dim3 grid, dim3 block, size_t shared_bytes, absl::FunctionRef<void()> thread);

// The rest is for the threads of a running kernel.

// The block's dynamic shared memory: 16-byte aligned, NaN at the start of each block.
unsigned char* DynamicShared();

// __syncthreads()
void SyncBlock();

// Waits for all lanes of `mask`, each of which comes with a value and the lane whose value it wants.
struct Exchanged {
  uint64_t value = 0;   // of the lane asked for; all ones where the block is smaller than that
  unsigned ballot = 0;  // lanes whose value is not 0
};
Exchanged SyncWarp(unsigned mask, uint64_t value, unsigned wanted_lane);

unsigned Lane();

}  // namespace cairn::cuda_on_cpu
