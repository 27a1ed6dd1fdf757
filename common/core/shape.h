// The extents of a tensor, outermost first. A scalar has none.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>

#include "absl/container/inlined_vector.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace cairn {

class Shape {
 public:
  Shape() = default;
  Shape(std::initializer_list<int64_t> dims) : dims_(dims) {}
  explicit Shape(absl::Span<const int64_t> dims) : dims_(dims.begin(), dims.end()) {}

  // Checks a shape that comes from the wire or from a file. INVALID_ARGUMENT for a negative extent, or if the
  // product of the nonzero extents exceeds 2^40.
  static absl::StatusOr<Shape> FromUntrusted(absl::Span<const int64_t> dims);

  int rank() const { return static_cast<int>(dims_.size()); }
  int64_t dim(int axis) const { return dims_[static_cast<size_t>(axis)]; }
  int64_t operator[](int axis) const { return dim(axis); }
  absl::Span<const int64_t> dims() const { return dims_; }
  void Append(int64_t extent) { dims_.push_back(extent); }

  // 1 for a scalar. A product above 2^56, more than any memory, is returned as 2^56 instead of overflowing.
  int64_t num_elements() const;
  // The product of all extents but the first; 1 for scalars and vectors.
  int64_t row_elements() const;
  // "[3,3,1,32]"
  std::string ToString() const;

  friend bool operator==(const Shape& a, const Shape& b) { return a.dims_ == b.dims_; }
  friend bool operator!=(const Shape& a, const Shape& b) { return !(a == b); }

 private:
  absl::InlinedVector<int64_t, 4> dims_;
};

}  // namespace cairn
