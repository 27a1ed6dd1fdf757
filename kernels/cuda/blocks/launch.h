// Launching kernels: CAIRN_LAUNCH works for nvcc, and for the tests that run kernels on a CPU.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>

#include "kernels/cuda/runtime/status.h"

// CAIRN_RETURN_IF_ERROR(CAIRN_LAUNCH((Kernel<float>), grid, block, shared_bytes, stream, arguments...));
#if defined(__CUDACC__)
#define CAIRN_LAUNCH(kernel, grid, block, shared_bytes, stream, ...)      \
  ([&]() -> absl::Status {                                                \
    kernel<<<(grid), (block), (shared_bytes), (stream)>>>(__VA_ARGS__);   \
    return ::cairn::kernels::cuda::ToStatus(cudaGetLastError(), #kernel); \
  }())
// Dynamic shared memory within a kernel: CAIRN_DYNAMIC_SHARED(float, partial);
#define CAIRN_DYNAMIC_SHARED(type, name)                                \
  extern __shared__ __align__(16) unsigned char cairn_dynamic_shared[]; \
  type* const name = reinterpret_cast<type*>(cairn_dynamic_shared)
#else  // tests/support/cuda_on_cpu
#define CAIRN_LAUNCH(kernel, grid, block, shared_bytes, stream, ...)                                     \
  ([&]() -> absl::Status {                                                                               \
    ::cairn::cuda_on_cpu::Launch(                                                                        \
        (grid), (block), (shared_bytes), (stream),                                                       \
        [=](const auto&... cairn_arguments) { kernel(cairn_arguments...); } __VA_OPT__(, ) __VA_ARGS__); \
    return ::cairn::kernels::cuda::ToStatus(cudaGetLastError(), #kernel);                                \
  }())
#define CAIRN_DYNAMIC_SHARED(type, name) \
  type* const name = reinterpret_cast<type*>(::cairn::cuda_on_cpu::DynamicShared())
#endif

namespace cairn::kernels::cuda {

inline constexpr int kWarp = 32;
inline constexpr int kBlock = 256;  // the default number of threads per block

constexpr int64_t CeilDiv(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

// The number of blocks for a kernel with one thread for each of `items`, at most 2^20 blocks. If there are
// more items than threads, the threads stride over the items:
//   for (int64_t i = CAIRN_GLOBAL_THREAD; i < items; i += CAIRN_GLOBAL_THREADS)
inline unsigned GridFor(int64_t items, int block = kBlock) {
  constexpr int64_t kMaxBlocks = 1 << 20;
  return static_cast<unsigned>(std::clamp<int64_t>(CeilDiv(items, block), 1, kMaxBlocks));
}
#define CAIRN_GLOBAL_THREAD (static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x)
#define CAIRN_GLOBAL_THREADS (static_cast<int64_t>(gridDim.x) * blockDim.x)

}  // namespace cairn::kernels::cuda
