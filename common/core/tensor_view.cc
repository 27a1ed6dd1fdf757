#include "common/core/tensor_view.h"

#include <utility>

#include "common/core/status.h"

namespace cairn {
namespace {

Shape WithRows(const Shape& shape, int64_t rows) {
  Shape changed = {rows};
  for (int axis = 1; axis < shape.rank(); ++axis) changed.Append(shape[axis]);
  return changed;
}

}  // namespace

int64_t BytesOf(DType type) {
  switch (type) {
    case DType::kUint8:
    case DType::kBool:
      return 1;
    case DType::kBFloat16:
    case DType::kFloat16:
      return 2;
    case DType::kFloat32:
    case DType::kInt32:
      return 4;
    case DType::kInt64:
      break;
  }
  return 8;
}

absl::string_view NameOf(DType type) {
  switch (type) {
    case DType::kFloat32:
      return "float32";
    case DType::kInt32:
      return "int32";
    case DType::kInt64:
      return "int64";
    case DType::kUint8:
      return "uint8";
    case DType::kBool:
      return "bool";
    case DType::kBFloat16:
      return "bfloat16";
    case DType::kFloat16:
      return "float16";
  }
  return "unknown";
}

TensorView TensorView::OfFloats(Shape shape, absl::Span<const float> values) {
  CAIRN_CHECK(shape.num_elements() == static_cast<int64_t>(values.size()));
  return {DType::kFloat32, std::move(shape), values.data()};
}

int64_t TensorView::Integer(int64_t index) const {
  return WithIntegerType(dtype, [&](auto zero) {
    return static_cast<int64_t>(static_cast<const decltype(zero)*>(data)[index]);
  });
}

TensorView TensorView::Rows(int64_t first, int64_t count) const {
  if (ragged()) {
    return {dtype, shape, data,
            row_splits.subspan(static_cast<size_t>(first), static_cast<size_t>(count) + 1)};
  }
  return {dtype, WithRows(shape, count),
          static_cast<const char*>(data) + first * shape.row_elements() * BytesOf(dtype)};
}

MutableTensorView MutableTensorView::OfFloats(Shape shape, absl::Span<float> values) {
  CAIRN_CHECK(shape.num_elements() == static_cast<int64_t>(values.size()));
  return {DType::kFloat32, std::move(shape), values.data()};
}

}  // namespace cairn
