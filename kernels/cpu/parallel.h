// Loops over memory, spread over the device's threads.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/cpu/onednn.h"

namespace cairn::kernels::cpu {

// body(begin, end) for pieces of [0, count) of at least `grain` each but the last. Which piece an index falls
// into depends on `count` and `grain` alone, never on the number of threads.
template <typename Body>
void ParallelFor(const onednn::Context& context, int64_t count, int64_t grain, const Body& body) {
  const int64_t pieces = (count + grain - 1) / grain;
  if (pieces <= 1 || context.threads() == 1) {
    for (int64_t piece = 0; piece < pieces; ++piece) {
      body(piece * grain, std::min(count, (piece + 1) * grain));
    }
    return;
  }
  context.UseThreads();
#pragma omp parallel for schedule(static)
  for (int64_t piece = 0; piece < pieces; ++piece) {
    body(piece * grain, std::min(count, (piece + 1) * grain));
  }
}

// Elements of a piece of an element-wise loop: some microseconds of work.
inline constexpr int64_t kElementGrain = 16 << 10;

}  // namespace cairn::kernels::cpu
