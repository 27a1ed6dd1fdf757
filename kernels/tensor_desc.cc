#include "absl/strings/str_cat.h"
#include "kernels/device.h"

namespace cairn::kernels {

int64_t BlockOf(Layout layout) {
  switch (layout) {
    case Layout::kRowMajor:
      return 1;
    case Layout::kBlocked8:
      return 8;
    case Layout::kBlocked16:
      return 16;
  }
  return 1;
}

int64_t TensorDesc::num_floats() const {
  if (layout == Layout::kRowMajor) return shape.num_elements();
  const int64_t block = BlockOf(layout);
  const int64_t blocks = (shape[3] + block - 1) / block;
  return shape[0] * blocks * shape[1] * shape[2] * block;
}

std::string TensorDesc::ToString() const {
  if (layout == Layout::kRowMajor) return shape.ToString();
  return absl::StrCat(shape.ToString(), " blocked", BlockOf(layout));
}

}  // namespace cairn::kernels
