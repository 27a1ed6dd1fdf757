#include "kernels/upsample.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace cairn::kernels {

absl::StatusOr<Shape> OutputShape(const Upsample2DParams& params) {
  const Shape& input = params.input.shape;
  if (input.rank() != 4 || std::min({input.num_elements(), params.height, params.width}) < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("cannot upsample ", params.input.ToString(), " by ", params.height, "x", params.width,
                     ": expected [batch, height, width, channels], factors from 1 up"));
  }
  return Shape({input[0], input[1] * params.height, input[2] * params.width, input[3]});
}

}  // namespace cairn::kernels
