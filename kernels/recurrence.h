// Recurrent layers: the checks and the scalar formulas that all backends share.
#pragma once

#include <cmath>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/core/host_device.h"
#include "kernels/formulas.h"
#include "kernels/ops.h"

namespace cairn::kernels {

// Whether the derivative of the function follows from its value: see DerivativeOfValue().
inline bool HasDerivativeOfValue(const ActivationParams& f) {
  switch (f.kind) {
    case Activation::kRelu:
      return f.threshold == 0 && f.slope >= 0;
    case Activation::kLinear:
    case Activation::kElu:
    case Activation::kSelu:
    case Activation::kSigmoid:
    case Activation::kTanh:
    case Activation::kSoftplus:
    case Activation::kHardSigmoid:
      return true;
    default:
      return false;
  }
}

// f'(x) from y = f(x). It equals ActivationDerivative() up to rounding.
CAIRN_HOST_DEVICE inline float DerivativeOfValue(const ActivationParams& f, float y) {
  switch (f.kind) {
    case Activation::kRelu:
      if (y > 0) return y < f.limit || f.limit == std::numeric_limits<float>::infinity() ? 1.0f : 0.0f;
      if (y == 0) return ReluDerivativeAtThreshold(f);
      return y < 0 ? f.slope : 0.0f;
    case Activation::kElu:
      return y > 0 ? 1.0f : y + f.slope;
    case Activation::kSelu:
      return y > 0 ? kSeluScale : y + kSeluScale * kSeluAlpha;
    case Activation::kSigmoid:
      return y * (1.0f - y);
    case Activation::kTanh:
      return 1.0f - y * y;
    case Activation::kSoftplus:
      return 1.0f - std::exp(-y);
    case Activation::kHardSigmoid:
      return y > 0 && y < 1 ? 1.0f / 6 : 0.0f;
    default:
      return 1;
  }
}

inline absl::Status Validate(const RecurrenceParams& params) {
  if (params.batch < 1 || params.steps < 1 || params.units < 1) {
    return absl::InvalidArgumentError(absl::StrCat("a recurrent layer of ", params.units, " units over ",
                                                   params.steps, " steps of ", params.batch,
                                                   " examples: expected at least 1"));
  }
  if (params.y_width > 0 && (params.y_column < 0 || params.y_column + params.units > params.y_width)) {
    return absl::InvalidArgumentError(absl::StrCat("a recurrent layer writes columns from ", params.y_column,
                                                   " of ", params.y_width, ", which do not hold ",
                                                   params.units, " units"));
  }
  if (!HasDerivativeOfValue(params.activation) || !HasDerivativeOfValue(params.recurrent_activation))
    return absl::UnimplementedError(
        "a recurrent layer with an activation whose value does not give its derivative");
  return absl::OkStatus();
}

// Where the output of a step begins in y, in elements.
struct RecurrentOutput {
  explicit RecurrentOutput(const RecurrenceParams& params)
      : width(params.y_width > 0 ? params.y_width : params.units),
        column(params.y_column),
        rows(params.sequences ? params.steps : 1) {}
  int64_t width, column, rows;

  CAIRN_HOST_DEVICE int64_t At(int64_t example, int64_t row) const {
    return (example * rows + row) * width + column;
  }
};

}  // namespace cairn::kernels
