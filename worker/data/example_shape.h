// Whether examples of one shape may be read as examples of another. The number of elements alone does not
// decide: images channels first have as many as images channels last.
#pragma once

#include <string>

#include "common/core/shape.h"

namespace cairn::data {

// At most one axis is longer than 1.
bool IsFlat(const Shape& shape);

// True when row-major examples of the shape `given` may be read as `wanted`: the shapes are equal but for
// axes of extent 1, or have equally many elements and `given` is flat or `wanted` has at most one axis.
bool IsCompatible(const Shape& given, const Shape& wanted);

// Why incompatible shapes of equally many elements differ, as the end of a message: "; they are channels
// first, ..." Empty where no such reason is known.
std::string MismatchHint(const Shape& given, const Shape& wanted);

}  // namespace cairn::data
