// Keras' regularizers and constraints of variables, as a layer's JSON describes them.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "absl/status/statusor.h"
#include "common/core/constraint.h"
#include "common/core/shape.h"
#include "nn/layer/layer.h"

namespace cairn::nn {

// Reads L1, L2, L1L2 or OrthogonalRegularizer: an object or a name. INVALID_ARGUMENT for anything else.
absl::StatusOr<RegularizerSpec> ParseRegularizer(const nlohmann::json& value);
// INVALID_ARGUMENT if a variable of this shape cannot have the regularizer.
absl::Status CheckShape(const RegularizerSpec& regularizer, const Shape& shape);

// Reads NonNeg, MaxNorm, UnitNorm or MinMaxNorm: an object or a name. Axes are as in VariableSpec. INVALID_ARGUMENT for
// anything else.
absl::StatusOr<Constraint> ParseConstraint(const nlohmann::json& value);
// The constraint with ascending axes that are counted from the beginning. INVALID_ARGUMENT if a variable of this shape
// cannot have it.
absl::StatusOr<Constraint> Resolve(Constraint constraint, const Shape& shape);

}  // namespace cairn::nn
