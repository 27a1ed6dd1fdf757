// Adjacent elements that a thread loads and stores at once.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace cairn::kernels::cuda {

template <typename T, int kCount>
struct alignas(sizeof(T) * kCount) Pack {
  T at[kCount];
};

// For kernels that move elements without computing with them. Calls `visit` with a null pointer to the
// largest type whose size divides `bytes`, an even number.
template <typename Visit>
auto VisitMovedUnit(int64_t bytes, const Visit& visit) {
  if (bytes % 16 == 0) return visit(static_cast<uint4*>(nullptr));
  if (bytes % 8 == 0) return visit(static_cast<uint2*>(nullptr));
  if (bytes % 4 == 0) return visit(static_cast<uint32_t*>(nullptr));
  return visit(static_cast<uint16_t*>(nullptr));
}

}  // namespace cairn::kernels::cuda
