// Comparisons and logical functions: what all backends share.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "common/core/host_device.h"
#include "kernels/broadcast.h"
#include "kernels/ops.h"

namespace cairn::kernels {

struct ComparisonPlan {
  Broadcast broadcast;
  TensorDesc output;
  bool integers = false;  // both inputs are compared as int64, otherwise as float
};

// INVALID_ARGUMENT unless there are two inputs, row-major, that broadcast to one shape.
absl::StatusOr<ComparisonPlan> PlanComparison(const ComparisonParams& params);

// `Value`: int64_t or float. A NaN equals nothing, and is not 0.
template <typename Value>
CAIRN_HOST_DEVICE inline bool Compare(Comparison kind, Value a, Value b) {
  switch (kind) {
    case Comparison::kEqual:
      return a == b;
    case Comparison::kNotEqual:
      return a != b;
    case Comparison::kGreater:
      return a > b;
    case Comparison::kGreaterEqual:
      return a >= b;
    case Comparison::kLess:
      return a < b;
    case Comparison::kLessEqual:
      return a <= b;
    case Comparison::kAnd:
      return a != 0 && b != 0;
    case Comparison::kOr:
      return a != 0 || b != 0;
    case Comparison::kXor:
      return (a != 0) != (b != 0);
  }
  return false;
}

}  // namespace cairn::kernels
