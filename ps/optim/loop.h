// Loops compiled once per instruction set and chosen when they run. Private to ps/optim.
//
// The body is an always-inlined lambda: it is compiled into each of the clones below with that clone's
// vectors. The arithmetic is IEEE's, element by element, and the folder is compiled without contraction to
// fused multiply-adds (CMakeLists.txt), so all clones, and a loop's vector part and its scalar tail, give the
// same bits.
#pragma once

#include <cstdint>

#include "ps/optim/isa.h"

#define CAIRN_INLINE_LAMBDA __attribute__((always_inline))

// For a loop whose pointers are equal or do not overlap: no run-time check, so that an update in place
// vectorises.
#if defined(__clang__)
#define CAIRN_INDEPENDENT_ITERATIONS _Pragma("clang loop vectorize(assume_safety)")
#else
#define CAIRN_INDEPENDENT_ITERATIONS _Pragma("GCC ivdep")
#endif

namespace cairn::ps {

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

// element(i) for each i in [0, count), in no particular order. `element` is declared CAIRN_INLINE_LAMBDA and
// captures by value.
template <typename Element>
void ForEachElement(Isa isa, int64_t count, Element element) {
  RunOn(isa, [=]() CAIRN_INLINE_LAMBDA {
    CAIRN_INDEPENDENT_ITERATIONS
    for (int64_t i = 0; i < count; ++i) element(i);
  });
}

}  // namespace cairn::ps
