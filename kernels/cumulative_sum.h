// Cumulative sums: what all backends share.
#pragma once

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "kernels/ops.h"

namespace cairn::kernels {

// INVALID_ARGUMENT unless the input is row-major [n, steps, c] with elements.
inline absl::Status Validate(const CumulativeSumParams& params) {
  const TensorDesc& input = params.input;
  if (input.layout == Layout::kRowMajor && input.shape.rank() == 3 && input.shape.num_elements() > 0 &&
      !IsInteger(input.type)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat("cannot sum up along the steps of ", input.ToString(),
                                                 ": expected row-major floats [n, steps, c]"));
}

}  // namespace cairn::kernels
