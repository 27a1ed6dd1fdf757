// The output of a broadcast as runs along its last axis.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "kernels/broadcast.h"

namespace cairn::kernels::cpu {

// A run of output elements along the last axis, and where it begins in each input.
struct Run {
  int64_t output = 0, count = 0;
  std::array<int64_t, Broadcast::kMaxInputs> offsets = {};  // [input]
};

// Calls visit(run) for the runs that make up the output elements [begin, end).
template <typename Visit>
void ForEachRun(const Broadcast& b, int64_t begin, int64_t end, const Visit& visit) {
  const int last = b.axes - 1;
  for (int64_t at = begin; at < end;) {
    Run run = {.output = at};
    int64_t rest = at, in_row = 0;
    for (int axis = last; axis >= 0; --axis) {
      const int64_t index = rest % b.extents[axis];
      rest /= b.extents[axis];
      if (axis == last) in_row = index;
      for (int i = 0; i < b.inputs; ++i) run.offsets[static_cast<size_t>(i)] += index * b.strides[i][axis];
    }
    run.count = std::min(end - at, b.extents[last] - in_row);
    visit(run);
    at += run.count;
  }
}

}  // namespace cairn::kernels::cpu
