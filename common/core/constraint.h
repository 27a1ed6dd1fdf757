// A constraint of a variable: how its values are changed after each update by an optimizer, as Keras' constraints
// define it. A value type. optim/constraint.h computes it.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/core/shape.h"

namespace cairn {

struct Constraint {
  // Values below 0 become 0 (Keras' NonNeg). The other fields are then unused.
  bool non_negative = false;
  // Otherwise values are scaled by their L2 norm over these axes, which are ascending. The norm becomes
  // rate * clip(norm, min_norm, max_norm) + (1 - rate) * norm (Keras' MinMaxNorm; MaxNorm and UnitNorm are special
  // cases of it).
  std::vector<int> axes{};
  float min_norm = 0, max_norm = 0;
  float rate = 1;

  // Whether it scales by norms, which are known only when a whole slice has been updated.
  bool takes_norms() const { return !non_negative; }
  // Whether the rows of the variable depend on each other, so that all of them must be on one server.
  bool needs_all_rows() const { return takes_norms() && !axes.empty() && axes.front() == 0; }
  // INVALID_ARGUMENT for axes that a variable of this shape does not have, norms that are not 0 <= min <= max, or a
  // rate outside [0, 1].
  absl::Status Check(const Shape& shape) const;
  // "non-negative", or "norms over axes [0] in [0, 2] at rate 1"
  std::string ToString() const;

  friend bool operator==(const Constraint&, const Constraint&) = default;
};

}  // namespace cairn
