// Rotary position embeddings: its contract's checks, and the angles, for every backend.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "kernels/ops.h"

namespace cairn::kernels {

inline absl::Status Validate(const RotaryParams& params) {
  const Shape& shape = params.input.shape;
  const int rank = shape.rank();
  const bool fits = rank >= 3 && shape.num_elements() > 0 && params.input.layout == Layout::kRowMajor &&
                    shape[rank - 1] == 2 * static_cast<int64_t>(params.frequencies.size());
  if (fits) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("cannot rotate ", params.input.ToString(), " by ",
                                                 params.frequencies.size(),
                                                 " frequencies: expected row-major [n, steps, ..., width], "
                                                 "and a frequency for each two elements of the last axis"));
}

// The number of steps that have factors.
inline int64_t RotarySteps(const RotaryParams& params) {
  return params.first == nullptr ? params.input.shape[1] : params.steps;
}

// The first step of a call. OUT_OF_RANGE if a step has no factors.
inline absl::StatusOr<int64_t> FirstRotaryStep(const RotaryParams& params) {
  const int64_t first = params.first == nullptr ? 0 : *params.first, steps = RotarySteps(params);
  if (first >= 0 && first + params.input.shape[1] <= steps) return first;
  return absl::OutOfRangeError(absl::StrCat("cannot rotate ", params.input.shape[1], " steps from step ",
                                            first, " on: there are factors of ", steps));
}

// The factors of all steps [steps, width / 2], cosines and then sines.
inline std::vector<float> RotaryFactors(const RotaryParams& params) {
  std::vector<float> factors;
  for (const auto function : {+[](double x) { return std::cos(x); }, +[](double x) { return std::sin(x); }}) {
    for (int64_t step = 0; step < RotarySteps(params); ++step) {
      for (const double frequency : params.frequencies)
        factors.push_back(static_cast<float>(function(static_cast<double>(step) * frequency)));
    }
  }
  return factors;
}

}  // namespace cairn::kernels
