// Helpers shared by the gradient codecs: unaligned numbers, blocks that a chunk covers partly, and loops that
// are also compiled for AVX2.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>

#include "common/net/gradient/codec.h"

// Defines NAME(args...), which calls `body`, an always-inlined function. On x86, `body` is also compiled for
// AVX2, and NAME uses that version if the processor supports it. Neither version uses fused arithmetic, so
// both give the same bits.
#define CAIRN_INLINE inline __attribute__((always_inline))
#if defined(__x86_64__)
#define CAIRN_VECTOR_FUNCTION(name, body)                                   \
  template <typename... Args>                                               \
  __attribute__((target("avx2"), noinline)) auto name##Avx2(Args... args) { \
    return body(args...);                                                   \
  }                                                                         \
  template <typename... Args>                                               \
  auto name(Args... args) {                                                 \
    static const bool avx2 = __builtin_cpu_supports("avx2");                \
    return avx2 ? name##Avx2(args...) : body(args...);                      \
  }
#else
#define CAIRN_VECTOR_FUNCTION(name, body) \
  template <typename... Args>             \
  auto name(Args... args) {               \
    return body(args...);                 \
  }
#endif

namespace cairn::net {

inline constexpr uint32_t kMagnitudeBits = 0x7fffffff;
inline constexpr uint32_t kInfinityBits = 0x7f800000;

template <typename T>
T At(const char* from, int64_t index) {
  T value;
  std::memcpy(&value, from + index * static_cast<int64_t>(sizeof(T)), sizeof(T));
  return value;
}

template <typename T>
void PutAt(char* to, int64_t index, T value) {
  std::memcpy(to + index * static_cast<int64_t>(sizeof(T)), &value, sizeof(T));
}

CAIRN_INLINE uint32_t MagnitudeOf(float value) {
  return std::bit_cast<uint32_t>(value) & kMagnitudeBits;
}

inline bool IsFinite(float value) {
  return MagnitudeOf(value) < kInfinityBits;
}

// Rounds a number of bytes up to whole floats.
inline int64_t WholeFloats(int64_t bytes) {
  return (bytes + 3) / 4 * 4;
}

// The number of blocks of `block` elements that the cut covers, at least partly.
inline int64_t BlocksOf(const Cut& cut, int64_t block) {
  return cut.count == 0 ? 0 : (cut.first % block + cut.count + block - 1) / block;
}

// Calls body(block, begin, end) for each block that elements [skip, skip + count) of the cut cover, at least
// partly. `block` is counted from the first block of the cut; [begin, end) are the covered elements, counted
// from the start of the cut.
template <typename Body>
CAIRN_INLINE void ForEachBlock(const Cut& cut, int64_t block, int64_t skip, int64_t count, Body body) {
  const int64_t phase = cut.first % block;
  for (int64_t begin = skip; begin < skip + count;) {
    const int64_t number = (phase + begin) / block;
    const int64_t end = std::min(skip + count, (number + 1) * block - phase);
    body(number, begin, end);
    begin = end;
  }
}

}  // namespace cairn::net
