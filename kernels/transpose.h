// The copies of a transposition, the same for all backends.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "common/core/shape.h"
#include "kernels/ops.h"

namespace cairn::kernels {

// The output as a row-major sequence of chunks, and where each of them is in the input. Axes that stay together
// are one axis, and the chunk consists of the last axes that keep their place.
struct TransposePlan {
  static constexpr int kMaxAxes = 6;
  int64_t chunk = 1;                        // elements
  int axes = 0;                             // 0, or at least 2
  std::array<int64_t, kMaxAxes> extents{};  // [axis of the output]
  std::array<int64_t, kMaxAxes> strides{};  // [axis of the output] the distance in the input, in chunks

  int64_t chunks() const {
    int64_t all = 1;
    for (int axis = 0; axis < axes; ++axis) all *= extents[static_cast<size_t>(axis)];
    return all;
  }
};

struct TransposePlans {
  Shape output;
  TransposePlan forward, backward;
};

// INVALID_ARGUMENT unless `axes` is a permutation of the input's axes, UNIMPLEMENTED if more than kMaxAxes remain.
absl::StatusOr<TransposePlans> PlanTranspose(const TransposeParams& params);

}  // namespace cairn::kernels
