#include "data/input_rows.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace cairn::data {
namespace {

int64_t RowBytes(const InputSpec& spec) {
  return spec.shape.num_elements() * BytesOf(spec.dtype);
}

constexpr auto kFloat = static_cast<int64_t>(sizeof(float));

int64_t FloatsFor(int64_t bytes) {
  return (bytes + kFloat - 1) / kFloat;
}

}  // namespace

InputRows::InputRows(absl::Span<const InputSpec> specs, int64_t rows) : specs_(specs.begin(), specs.end()) {
  for (const InputSpec& spec : specs_) {
    AlignedBuffer& buffer = buffers_.emplace_back(FloatsFor((spec.ragged ? 1 : rows) * RowBytes(spec)));
    row_.push_back({spec.dtype, spec.shape, buffer.data()});
    row_splits_.emplace_back(spec.ragged ? static_cast<size_t>(rows) + 1 : 0);
  }
}

absl::Span<const MutableTensorView> InputRows::Row(int64_t row) {
  if (row == 0) cut_.clear();
  for (size_t i = 0; i < specs_.size(); ++i) {
    int64_t bytes = row * RowBytes(specs_[i]);
    if (specs_[i].ragged) {
      int64_t* const splits = row_splits_[i].data() + row;
      splits[1] = splits[0];  // the end moves when the row is written
      row_[i].end = splits + 1;
      bytes = splits[0] * BytesOf(specs_[i].dtype);
      MakeRoom(buffers_[i], bytes, RowBytes(specs_[i]));
    }
    row_[i].data = reinterpret_cast<char*>(buffers_[i].data()) + bytes;
  }
  return row_;
}

void InputRows::MakeRoom(AlignedBuffer& buffer, int64_t used_bytes, int64_t more_bytes) {
  if (FloatsFor(used_bytes + more_bytes) <= buffer.size()) return;
  AlignedBuffer larger(std::max(FloatsFor(used_bytes + more_bytes), 2 * buffer.size()));
  std::copy_n(buffer.data(), FloatsFor(used_bytes), larger.data());
  buffer = std::move(larger);
}

void InputRows::Cut(int64_t rows, absl::Span<const Shape> shapes) {
  cut_.assign(shapes.begin(), shapes.end());
  for (size_t i = 0; i < specs_.size(); ++i) {
    const int64_t whole = RowBytes(specs_[i]), kept = shapes[i].num_elements() * BytesOf(specs_[i].dtype);
    char* const bytes = reinterpret_cast<char*>(buffers_[i].data());
    if (kept == whole) continue;
    for (int64_t row = 1; row < rows; ++row) {
      std::memmove(bytes + row * kept, bytes + row * whole, static_cast<size_t>(kept));
    }
  }
}

TensorViews InputRows::First(int64_t rows) const {
  TensorViews first;
  for (size_t i = 0; i < specs_.size(); ++i) {
    if (specs_[i].ragged) {
      const auto splits = absl::MakeConstSpan(row_splits_[i]).first(static_cast<size_t>(rows) + 1);
      first.push_back({specs_[i].dtype, {splits.back()}, buffers_[i].data(), splits});
      continue;
    }
    Shape shape = {rows};
    for (const int64_t extent : (cut_.empty() ? specs_[i].shape : cut_[i]).dims()) shape.Append(extent);
    first.push_back({specs_[i].dtype, std::move(shape), buffers_[i].data()});
  }
  return first;
}

}  // namespace cairn::data
