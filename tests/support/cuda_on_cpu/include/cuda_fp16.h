// Stands in for CUDA's header of this name; see cuda_runtime.h.
#pragma once

struct __half {
  _Float16 value;
};

inline float __half2float(__half x) {
  return static_cast<float>(x.value);
}
// Rounds to nearest, ties to even.
inline __half __float2half(float x) {
  return {static_cast<_Float16>(x)};
}
