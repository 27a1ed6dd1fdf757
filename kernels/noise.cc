#include "kernels/noise.h"

#include "absl/strings/str_cat.h"

namespace cairn::kernels {

absl::Status CheckNoise(const NoiseParams& params) {
  const bool valid =
      params.input.layout == Layout::kRowMajor && params.input.shape.rank() >= 1 &&
      params.input.shape.num_elements() >= 1 && params.amount >= 0 &&
      params.amount <
          (params.kind == NoiseKind::kAlphaDropout ? 1.0f : std::numeric_limits<float>::infinity());
  if (valid) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("cannot apply noise of ", params.amount, " to ", params.input.ToString()));
}

}  // namespace cairn::kernels
