#include "optim/simd/isa.h"

#include <cstddef>
#include <iterator>

namespace cairn::optim {
namespace {

constexpr Isa kNarrowestFirst[] = {Isa::kBaseline, Isa::kAvx2, Isa::kAvx512};

bool Supported(Isa isa) {
#if defined(__x86_64__)
  if (isa == Isa::kAvx2) return __builtin_cpu_supports("avx2");
  if (isa == Isa::kAvx512) {
    return Supported(Isa::kAvx2) && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw");
  }
#endif
  return isa == Isa::kBaseline;
}

}  // namespace

absl::string_view IsaName(Isa isa) {
  switch (isa) {
    case Isa::kBaseline:
      return "baseline";
    case Isa::kAvx2:
      return "AVX2";
    case Isa::kAvx512:
      return "AVX-512";
  }
  return "unknown";
}

absl::Span<const Isa> SupportedIsas() {
  size_t count = 1;
  while (count < std::size(kNarrowestFirst) && Supported(kNarrowestFirst[count])) ++count;
  return absl::MakeConstSpan(kNarrowestFirst, count);
}

Isa WidestIsa() {
  return SupportedIsas().back();
}

}  // namespace cairn::optim
