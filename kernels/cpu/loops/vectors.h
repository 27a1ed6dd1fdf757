// Vectors of GCC and clang: arithmetic on all lanes at once, in whatever registers the processor has. (GCC 12
// does not vectorize the same loops over arrays.)
//
// The *_loops.cc are compiled once for each instruction set, into the namespace that CAIRN_ISA names: avx512,
// avx2 or portable. (A function's target attribute is not enough: GCC 12 then splits comparisons of 16
// lanes.) Everything that they use is in unnamed namespaces or always inlined: if several sources compile the
// same function, the linker keeps one copy, which may be one that this processor cannot run.
#pragma once

#include <cstdint>
#include <cstring>

namespace cairn::kernels::cpu {

// The position of a maximum in its window: row * window_width + column.
using WindowIndex = uint16_t;

#ifdef CAIRN_ISA
namespace CAIRN_ISA {

// CAIRN_LANES floats fill one register or, without AVX, two registers.
template <typename Element, int kLanes>
struct VectorOf {
  typedef Element Type __attribute__((vector_size(kLanes * sizeof(Element))));
};
template <int kLanes>
using Floats = typename VectorOf<float, kLanes>::Type;
template <int kLanes>
using Ints = typename VectorOf<int32_t, kLanes>::Type;
template <int kLanes>
using WindowIndices = typename VectorOf<WindowIndex, kLanes>::Type;

template <typename Vector, typename Element>
inline __attribute__((always_inline)) void Load(const Element* from, Vector& to) {
  std::memcpy(&to, from, sizeof(to));
}
template <typename Vector, typename Element>
inline __attribute__((always_inline)) void Store(const Vector& from, Element* to) {
  std::memcpy(to, &from, sizeof(from));
}

}  // namespace CAIRN_ISA
#endif

}  // namespace cairn::kernels::cpu
