// How incarnations of workers carry the generation of the job in which they were drawn: those of a generation
// are above those of every generation before, whatever the servers remember.
#pragma once

#include <cstdint>

namespace cairn::ps {

inline constexpr int kGenerationShift = 32;

// The incarnations of `generation` are above this one.
inline uint64_t IncarnationsBefore(int64_t generation) {
  return static_cast<uint64_t>(generation) << kGenerationShift;
}
inline int64_t GenerationOf(uint64_t incarnation) {
  return static_cast<int64_t>(incarnation >> kGenerationShift);
}

}  // namespace cairn::ps
