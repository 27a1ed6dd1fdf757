// The checks of ops that make or read masks of time steps, for every backend.
#pragma once

#include <cmath>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "kernels/ops.h"

namespace cairn::kernels {

inline absl::Status Validate(const StepMaskParams& params) {
  const Shape& shape = params.input.shape;
  if (shape.rank() != 2 || shape.num_elements() == 0 || params.input.layout != Layout::kRowMajor) {
    return absl::InvalidArgumentError(absl::StrCat("cannot mask the steps of ", params.input.ToString(),
                                                   ": expected row-major [steps, width]"));
  }
  // A number of the integer type: every type has those up to 255, and floats all up to 2^24.
  const bool known = params.masked == std::trunc(params.masked) && params.masked >= 0 &&
                     params.masked <= (params.input.type == ElementType::kUint8 ? 255 : 0x1p24f);
  if (IsInteger(params.input.type) && !known) {
    return absl::InvalidArgumentError(absl::StrCat("cannot mask the steps of ", params.input.ToString(),
                                                   " that equal ", params.masked, ": expected an id"));
  }
  return absl::OkStatus();
}

inline absl::Status Validate(const MaskedMeanParams& params) {
  const Shape& shape = params.input.shape;
  if (shape.rank() == 3 && shape.num_elements() > 0 && params.input.layout == Layout::kRowMajor)
    return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("cannot average over the steps of ", params.input.ToString(),
                                                 ": expected row-major [n, steps, channels]"));
}

}  // namespace cairn::kernels
