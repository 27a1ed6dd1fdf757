// Loops that are compiled once per instruction set and selected at run time. Private to optim.
//
// The body is an always-inlined lambda, which is compiled into each of the clones below with that clone's
// vectors. The arithmetic is IEEE's, element by element, and the folder is compiled without contraction to
// fused multiply-adds (CMakeLists.txt). Therefore all clones give the same bits, and so do a loop's vector
// part and its scalar tail.
#pragma once

#include <algorithm>
#include <cstdint>

#include "absl/types/span.h"
#include "optim/simd/isa.h"
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#define CAIRN_INLINE_LAMBDA __attribute__((always_inline))

// For a loop whose pointers are equal or do not overlap: omits the run-time check, so that an update in place
// is vectorised.
#if defined(__clang__)
#define CAIRN_INDEPENDENT_ITERATIONS _Pragma("clang loop vectorize(assume_safety)")
#else
#define CAIRN_INDEPENDENT_ITERATIONS _Pragma("GCC ivdep")
#endif

namespace cairn::optim {

template <typename Body>
auto RunBaseline(Body body) {
  return body();
}

#if defined(__x86_64__)
template <typename Body>
__attribute__((target("avx2"))) auto RunAvx2(Body body) {
  return body();
}

template <typename Body>
__attribute__((target("avx512f,avx512vl,avx512dq,avx512bw"))) auto RunAvx512(Body body) {
  return body();
}
#endif

// body() compiled for `isa`, which the machine must support.
template <typename Body>
auto RunOn(Isa isa, Body body) {
#if defined(__x86_64__)
  if (isa == Isa::kAvx512) return RunAvx512(body);
  if (isa == Isa::kAvx2) return RunAvx2(body);
#endif
  (void)isa;
  return RunBaseline(body);
}

// Calls element(i) for each i in [0, count), in no particular order. `element` is declared
// CAIRN_INLINE_LAMBDA and captures by value.
template <typename Element>
void ForEachElement(Isa isa, int64_t count, Element element) {
  RunOn(isa, [=]() CAIRN_INLINE_LAMBDA {
    CAIRN_INDEPENDENT_ITERATIONS
    for (int64_t i = 0; i < count; ++i) element(i);
  });
}

// Calls element(i, old_values[i], gradient[i]) for each i. The loop of an UpdateRule: `element` may write to
// old_values[i].
template <typename Element>
void ForEachElement(Isa isa, absl::Span<const float> old_values, absl::Span<const float> gradient,
                    Element element) {
  const float* w = old_values.data();
  const float* g = gradient.data();
  ForEachElement(isa, static_cast<int64_t>(old_values.size()),
                 [=](int64_t i) CAIRN_INLINE_LAMBDA { element(i, w[i], g[i]); });
}

#if defined(__x86_64__)
__attribute__((target("avx512f"))) inline void StreamLinesAvx512(int64_t count, const float* from,
                                                                 float* to) {
  for (int64_t i = 0; i < count; i += 16) _mm512_stream_ps(to + i, _mm512_load_ps(from + i));
}

inline void StreamLines(int64_t count, const float* from, float* to) {
  for (int64_t i = 0; i < count; i += 4) _mm_stream_ps(to + i, _mm_load_ps(from + i));
}
#endif

// Copies `count` elements to `to`, past the caches if the processor can; `from` is 64-byte aligned. Other
// threads see the elements after EndStreams().
inline void StreamTo(Isa isa, int64_t count, const float* from, float* to) {
#if defined(__x86_64__)
  constexpr int64_t kLine = 16;  // floats in a cache line
  const int64_t past = static_cast<int64_t>(reinterpret_cast<uintptr_t>(to) / sizeof(float)) % kLine;
  if (past == 0) {
    const int64_t whole = count / kLine * kLine;
    if (isa == Isa::kAvx512) {
      StreamLinesAvx512(whole, from, to);
    } else {
      StreamLines(whole, from, to);
    }
    std::copy(from + whole, from + count, to + whole);
    return;
  }
#endif
  (void)isa;
  std::copy_n(from, count, to);
}

inline void EndStreams() {
#if defined(__x86_64__)
  _mm_sfence();
#endif
}

}  // namespace cairn::optim
