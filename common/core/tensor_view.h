// Tensors in memory that someone else owns: an element type, a shape, and the address of the elements. The
// inputs of a model pass from the data set to the device in this form.
//
// Value types, safe to copy; the memory must outlive the view. Any thread.
#pragma once

#include <cstdint>

#include "absl/container/inlined_vector.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/core/shape.h"

namespace cairn {

// The type of a tensor's elements. The 16-bit types occur only between the operations of a device that computes
// with reduced precision.
enum class DType : uint8_t {
  kFloat32,
  kInt32,
  kInt64,
  kUint8,
  kBool,  // one byte, 0 or 1
  kBFloat16,
  kFloat16,
};

int64_t BytesOf(DType type);            // of one element
absl::string_view NameOf(DType type);   // "int64", as NumPy and Keras write it
constexpr bool IsInteger(DType type) {  // bool counts as an integer
  return type == DType::kInt32 || type == DType::kInt64 || type == DType::kUint8 || type == DType::kBool;
}

// Calls `body(T{})` with T the C++ type of an integer `type`.
template <typename Body>
auto WithIntegerType(DType type, Body body) {
  switch (type) {
    case DType::kInt32:
      return body(int32_t{});
    case DType::kUint8:
    case DType::kBool:
      return body(uint8_t{});
    default:
      return body(int64_t{});
  }
}

// Row-major elements in this machine's byte order.
struct TensorView {
  DType dtype = DType::kFloat32;
  Shape shape{};
  const void* data = nullptr;
  // The bounds of a ragged tensor's rows, which have different lengths: row i has the elements from row_splits[i]
  // to row_splits[i + 1], and `shape` is [all elements]. Empty: not ragged.
  absl::Span<const int64_t> row_splits{};

  // `values` must have as many elements as `shape`.
  static TensorView OfFloats(Shape shape, absl::Span<const float> values);

  // The elements of a float32 tensor.
  absl::Span<const float> floats() const {
    return {static_cast<const float*>(data), static_cast<size_t>(shape.num_elements())};
  }
  // Element `index` of an integer tensor.
  int64_t Integer(int64_t index) const;
  int64_t bytes() const { return shape.num_elements() * BytesOf(dtype); }
  bool ragged() const { return !row_splits.empty(); }
  // `count` rows along the first axis, beginning with `first`. Those of a ragged tensor keep all its elements.
  TensorView Rows(int64_t first, int64_t count) const;
};

// The inputs of a model, [input].
using TensorViews = absl::InlinedVector<TensorView, 2>;

// The same for memory that will be written.
struct MutableTensorView {
  DType dtype = DType::kFloat32;
  Shape shape{};
  void* data = nullptr;
  // The end of a ragged tensor's row, which has room for `shape`: the writer of the row adds the number of its
  // elements. Null: not ragged.
  int64_t* end = nullptr;

  static MutableTensorView OfFloats(Shape shape, absl::Span<float> values);

  absl::Span<float> floats() const {
    return {static_cast<float*>(data), static_cast<size_t>(shape.num_elements())};
  }
};

}  // namespace cairn
