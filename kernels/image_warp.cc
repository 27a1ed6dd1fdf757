#include "kernels/image_warp.h"

#include "absl/strings/str_cat.h"

namespace cairn::kernels {

absl::Status CheckImageWarp(const ImageWarpParams& params) {
  const TensorDesc& input = params.input;
  if (input.shape.rank() == 4 && input.shape.num_elements() >= 1 && input.layout == Layout::kRowMajor) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat("cannot transform ", input.ToString(),
                                                 ": expected row-major [batch, height, width, channels]"));
}

}  // namespace cairn::kernels
