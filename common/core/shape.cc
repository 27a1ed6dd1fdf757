#include "common/core/shape.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace cairn {

absl::StatusOr<Shape> Shape::FromUntrusted(absl::Span<const int64_t> dims) {
  constexpr int64_t kMaxElements = int64_t{1} << 40;
  Shape shape(dims);
  int64_t elements = 1;  // of all axes that are not empty, so that no product of some of them is larger
  for (int64_t extent : dims) {
    if (extent < 0) {
      return absl::InvalidArgumentError(absl::StrCat("shape ", shape.ToString(), " has a negative extent"));
    }
    if (extent == 0) continue;
    if (elements > kMaxElements / extent) {
      return absl::InvalidArgumentError(
          absl::StrCat("shape ", shape.ToString(), " has more than 2^40 elements"));
    }
    elements *= extent;
  }
  return shape;
}

int64_t Shape::num_elements() const {
  int64_t product = 1;
  for (int64_t extent : dims_) product *= extent;
  return product;
}

int64_t Shape::row_elements() const {
  int64_t product = 1;
  for (int axis = 1; axis < rank(); ++axis) product *= dim(axis);
  return product;
}

std::string Shape::ToString() const {
  return absl::StrCat("[", absl::StrJoin(dims_, ","), "]");
}

}  // namespace cairn
