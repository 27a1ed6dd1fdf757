// Whether examples of one shape may be read as examples of another. The number of elements does not suffice:
// channels-first images have as many elements as channels-last images.
#pragma once

#include <string>

#include "common/core/shape.h"

namespace cairn::data {

// At most one axis is longer than 1.
bool IsFlat(const Shape& shape);

// Whether row-major examples of the shape `given` may be read as `wanted`: the shapes are equal except for
// axes of extent 1, or have as many elements and `given` is flat or `wanted` has at most one axis.
bool IsCompatible(const Shape& given, const Shape& wanted);

// The reason why incompatible shapes with as many elements differ, as the end of a message: "; they are
// channels first, ..." Empty if no reason is known.
std::string MismatchHint(const Shape& given, const Shape& wanted);

}  // namespace cairn::data
