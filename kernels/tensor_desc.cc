#include <string>
#include <utility>

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
  if (layout == Layout::kRowMajor) return (shape.num_elements() * BytesOf(type) + 3) / 4;
  const int64_t block = BlockOf(layout);
  const int64_t blocks = (shape[3] + block - 1) / block;
  return Shape({shape[0], shape[1], shape[2], blocks * block}).num_elements();
}

TensorDesc TensorDesc::WithShape(Shape other) const {
  return {.shape = std::move(other), .layout = Layout::kRowMajor, .type = type};
}

std::string TensorDesc::ToString() const {
  std::string text = shape.ToString();
  if (layout != Layout::kRowMajor) absl::StrAppend(&text, " blocked", BlockOf(layout));
  if (type != ElementType::kFloat32) absl::StrAppend(&text, " ", NameOf(type));
  return text;
}

}  // namespace cairn::kernels
