// The element types of activations on a device, and conversion from and to float, in which all arithmetic is
// done.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include "kernels/device.h"

namespace cairn::kernels::cuda {

using BFloat16 = __nv_bfloat16;
using Float16 = __half;

__host__ __device__ inline float ToFloat(float x) {
  return x;
}
__host__ __device__ inline float ToFloat(BFloat16 x) {
  return __bfloat162float(x);
}
__host__ __device__ inline float ToFloat(Float16 x) {
  return __half2float(x);
}

// Rounds to nearest, ties to even.
template <typename T>
__host__ __device__ inline T FromFloat(float x);
template <>
__host__ __device__ inline float FromFloat<float>(float x) {
  return x;
}
template <>
__host__ __device__ inline BFloat16 FromFloat<BFloat16>(float x) {
  return __float2bfloat16(x);
}
template <>
__host__ __device__ inline Float16 FromFloat<Float16>(float x) {
  return __float2half(x);
}

// Calls `visit` with a null pointer of the float element type: VisitType(desc.type, [&](auto* p) {
//   using T = std::remove_pointer_t<decltype(p)>; ... });
template <typename Visit>
auto VisitType(ElementType type, const Visit& visit) {
  switch (type) {
    case ElementType::kBFloat16:
      return visit(static_cast<BFloat16*>(nullptr));
    case ElementType::kFloat16:
      return visit(static_cast<Float16*>(nullptr));
    default:
      break;
  }
  return visit(static_cast<float*>(nullptr));
}

// Pointers to activations are float* in interfaces, whatever the element type.
template <typename T>
const T* As(const float* pointer) {
  return reinterpret_cast<const T*>(pointer);
}
template <typename T>
T* As(float* pointer) {
  return reinterpret_cast<T*>(pointer);
}

// The number of elements that a thread loads and stores at once: 16 bytes.
template <typename T>
inline constexpr int kVector = 16 / sizeof(T);
template <typename T>
struct alignas(16) Vector {
  T at[kVector<T>];
};

}  // namespace cairn::kernels::cuda
