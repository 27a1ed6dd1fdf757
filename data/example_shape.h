// Whether examples of one shape may be read as examples of another. An equal number of elements is not
// enough: channels-first images have as many elements as channels-last images.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "common/core/shape.h"

namespace cairn::data {

// True if at most one axis is longer than 1.
bool IsFlat(const Shape& shape);

// Whether row-major examples of the shape `given` may be read as `wanted`. True in two cases: the shapes are
// equal except for axes of extent 1; or they have equally many elements, and `given` is flat or `wanted` has
// at most one axis.
bool IsCompatible(const Shape& given, const Shape& wanted);

// Why two incompatible shapes with equally many elements differ, as the end of a message: "; they are
// channels first, ..." Empty if no reason is known.
std::string MismatchHint(const Shape& given, const Shape& wanted);

// The error for examples of `name` that have equally many values for `input`, an input of the model that is ragged.
absl::Status NotRagged(const std::string& name, const std::string& input);

}  // namespace cairn::data
