// Standardization by given statistics: checks and formulas that all backends share.
#pragma once

#include <cmath>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/core/host_device.h"
#include "kernels/ops.h"

namespace cairn::kernels {

inline absl::Status Validate(const StandardizeParams& params) {
  const int64_t elements = params.input.shape.num_elements();
  if (params.input.layout == Layout::kRowMajor && elements > 0 && params.width > 0 &&
      elements % params.width == 0) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("statistics of ", params.width, " elements do not fit input ", params.input.ToString()));
}

// The divisor, as in Keras: the square root of the variance, at least `epsilon`. NaN unless variance >= 0.
CAIRN_HOST_DEVICE inline float Deviation(float variance, float epsilon) {
  const float root = std::sqrt(variance);
  return root < epsilon ? epsilon : root;
}

CAIRN_HOST_DEVICE inline float Standardized(float x, float mean, float variance, float epsilon, bool invert) {
  const float deviation = Deviation(variance, epsilon);
  return invert ? x * deviation + mean : (x - mean) / deviation;
}

CAIRN_HOST_DEVICE inline float StandardizedGradient(float dy, float variance, float epsilon, bool invert) {
  const float deviation = Deviation(variance, epsilon);
  return invert ? dy * deviation : dy / deviation;
}

}  // namespace cairn::kernels
