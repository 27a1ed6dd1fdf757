#include "data/input_rows.h"

namespace cairn::data {
namespace {

int64_t RowBytes(const InputSpec& spec) {
  return spec.shape.num_elements() * BytesOf(spec.dtype);
}

}  // namespace

InputRows::InputRows(absl::Span<const InputSpec> specs, int64_t rows) : specs_(specs.begin(), specs.end()) {
  constexpr auto kFloat = static_cast<int64_t>(sizeof(float));
  for (const InputSpec& spec : specs_) {
    AlignedBuffer& buffer = buffers_.emplace_back((rows * RowBytes(spec) + kFloat - 1) / kFloat);
    row_.push_back({spec.dtype, spec.shape, buffer.data()});
    row_splits_.emplace_back(spec.ragged ? static_cast<size_t>(rows) + 1 : 0);
  }
}

absl::Span<const MutableTensorView> InputRows::Row(int64_t row) {
  for (size_t i = 0; i < specs_.size(); ++i) {
    int64_t bytes = row * RowBytes(specs_[i]);
    if (specs_[i].ragged) {
      int64_t* const splits = row_splits_[i].data() + row;
      splits[1] = splits[0];  // the end moves when the row is written
      row_[i].end = splits + 1;
      bytes = splits[0] * BytesOf(specs_[i].dtype);
    }
    row_[i].data = reinterpret_cast<char*>(buffers_[i].data()) + bytes;
  }
  return row_;
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
    for (const int64_t extent : specs_[i].shape.dims()) shape.Append(extent);
    first.push_back({specs_[i].dtype, std::move(shape), buffers_[i].data()});
  }
  return first;
}

}  // namespace cairn::data
