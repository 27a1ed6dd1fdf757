// Keras' constraints: what an update does to the values that the optimizer has written. Pure functions, in place.
#pragma once

#include <cstdint>

#include "common/core/constraint.h"
#include "common/core/shape.h"
#include "optim/simd/isa.h"

namespace cairn::optim {

// Values below 0 become 0. A NaN stays.
void RaiseToZero(int64_t count, float* values, Isa isa = WidestIsa());

// values *= new norm / (norm + 1e-7), for each norm over the constraint's axes (keras/src/constraints/constraints.py).
// `values` have this shape, row-major: a whole variable, or some of its rows unless the constraint needs all
// of them. Norms are summed in double, in the order of the values.
void ScaleToNorms(const Constraint& constraint, const Shape& shape, float* values);

}  // namespace cairn::optim
