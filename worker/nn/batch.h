// What goes into a replica and what comes out, batch by batch; all of it host memory.
#pragma once

#include <cstdint>

#include "absl/types/span.h"
#include "kernels/ops.h"

namespace cairn::nn {

// Examples, borrowed for the call.
struct BatchView {
  int64_t examples = 0;
  absl::Span<const float> inputs{};   // [examples, input_shape], row-major; several inputs side by side
  absl::Span<const float> targets{};  // [examples, the loss' targets per example]
  absl::Span<const float> weights{};  // [examples]; empty where every example weighs 1
  uint64_t seed = 0;                  // of what the step draws at random (dropout)
};

// What the network made of them.
struct BatchResult {
  kernels::LossSums sums{};
  absl::Span<const float> outputs{};  // [examples, output_shape], row-major; until the replica's next call
};

}  // namespace cairn::nn
