#include "kernels/ops.h"

#include <cmath>

#include "absl/strings/str_cat.h"

namespace cairn::kernels {

absl::Status Validate(const GaussianSampleParams& params) {
  if (params.elements >= 1 && params.kl_factor >= 0 && std::isfinite(params.kl_factor))
    return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("cannot sample ", params.elements,
                                                 " elements with a divergence times ", params.kl_factor));
}

}  // namespace cairn::kernels
