// A worker's incarnation contains the generation of the job in which it was drawn. Therefore the incarnations
// of a generation are above all incarnations of earlier generations, even if no server remembers those.
#pragma once

#include <cstdint>

namespace cairn::ps {

inline constexpr int kGenerationShift = 32;

// All incarnations of `generation` are above this one.
inline uint64_t IncarnationsBefore(int64_t generation) {
  return static_cast<uint64_t>(generation) << kGenerationShift;
}
inline int64_t GenerationOf(uint64_t incarnation) {
  return static_cast<int64_t>(incarnation >> kGenerationShift);
}

}  // namespace cairn::ps
