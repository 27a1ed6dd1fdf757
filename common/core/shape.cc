#include "common/core/shape.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace cairn {

absl::StatusOr<Shape> Shape::FromUntrusted(absl::Span<const int64_t> dims) {
  constexpr int64_t kMaxUntrusted = int64_t{1} << 40;
  Shape shape(dims);
  int64_t elements = 1;  // product of the nonzero extents, which bounds every product of some extents
  for (int64_t extent : dims) {
    if (extent < 0) {
      return absl::InvalidArgumentError(absl::StrCat("shape ", shape.ToString(), " has a negative extent"));
    }
    if (extent == 0) continue;
    if (elements > kMaxUntrusted / extent) {
      return absl::InvalidArgumentError(
          absl::StrCat("shape ", shape.ToString(), " has more than 2^40 elements"));
    }
    elements *= extent;
  }
  return shape;
}

namespace {

// More than any memory holds, and small enough that the size in bytes does not overflow.
constexpr int64_t kMaxElements = int64_t{1} << 56;

int64_t Product(absl::Span<const int64_t> extents) {
  int64_t product = 1;
  bool overflows = false;
  for (int64_t extent : extents) {
    if (extent == 0) return 0;
    overflows = overflows || __builtin_mul_overflow(product, extent, &product) || product > kMaxElements;
  }
  return overflows ? kMaxElements : product;
}

}  // namespace

int64_t Shape::num_elements() const {
  return Product(dims_);
}

int64_t Shape::row_elements() const {
  return rank() == 0 ? 1 : Product(dims().subspan(1));
}

std::string Shape::ToString() const {
  return absl::StrCat("[", absl::StrJoin(dims_, ","), "]");
}

}  // namespace cairn
