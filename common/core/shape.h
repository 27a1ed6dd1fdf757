// A tensor's extents, outermost first; scalars have none.
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

  // Refuses negative extents and more than 2^40 elements, 0 counted as 1: what bytes from outside go through.
  static absl::StatusOr<Shape> FromUntrusted(absl::Span<const int64_t> dims);

  int rank() const { return static_cast<int>(dims_.size()); }
  int64_t dim(int axis) const { return dims_[static_cast<size_t>(axis)]; }
  int64_t operator[](int axis) const { return dim(axis); }
  absl::Span<const int64_t> dims() const { return dims_; }
  void Append(int64_t extent) { dims_.push_back(extent); }

  // 1 for a scalar; at most 2^56, which no memory holds: a larger product does not overflow.
  int64_t num_elements() const;
  // Elements of one row, that is of everything but the first axis; 1 for scalars and vectors.
  int64_t row_elements() const;
  // "[3,3,1,32]"
  std::string ToString() const;

  friend bool operator==(const Shape& a, const Shape& b) { return a.dims_ == b.dims_; }
  friend bool operator!=(const Shape& a, const Shape& b) { return !(a == b); }

 private:
  absl::InlinedVector<int64_t, 4> dims_;
};

}  // namespace cairn
