#include "kernels/recurrence.h"

#include "absl/strings/str_cat.h"

namespace cairn::kernels {

absl::Status Validate(const RecurrenceParams& params) {
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
  if (!params.activation.has_derivative_of_value() || !params.recurrent_activation.has_derivative_of_value())
    return absl::UnimplementedError(
        "a recurrent layer with an activation whose value does not give its derivative");
  return absl::OkStatus();
}

}  // namespace cairn::kernels
