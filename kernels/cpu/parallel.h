// Loops over memory, spread over the device's threads.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/cpu/onednn.h"

namespace cairn::kernels::cpu {

// Divides [0, count) into ranges of `grain` elements, of which the last may be shorter, and calls body(begin,
// end) for each range. The ranges depend only on `count` and `grain`, never on the number of threads.
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

// Elements per range of an element-wise loop: a few microseconds of work.
inline constexpr int64_t kElementGrain = 16 << 10;

}  // namespace cairn::kernels::cpu
