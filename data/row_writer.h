// Writes the numbers of a row, whatever their type in the file, to tensors of the types that a model takes.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "common/core/tensor_view.h"
#include "data/row_source.h"

namespace cairn::data {

// `value` as an element of an integer tensor of type `type`; nullopt if the tensor cannot hold it.
template <typename T>
std::optional<int64_t> ToInteger(T value, DType type) {
  int64_t integer = 0;
  if constexpr (std::is_integral_v<T>) {
    if (!std::in_range<int64_t>(value)) return std::nullopt;
    integer = static_cast<int64_t>(value);
  } else {
    const auto number = static_cast<double>(value);
    // -2^63 and 2^63 are doubles; every double between them fits.
    if (!(number >= -0x1p63 && number < 0x1p63) || number != std::floor(number)) return std::nullopt;
    integer = static_cast<int64_t>(number);
  }
  const bool fits = type == DType::kInt64   ? true
                    : type == DType::kInt32 ? std::in_range<int32_t>(integer)
                    : type == DType::kUint8 ? std::in_range<uint8_t>(integer)
                                            : integer == 0 || integer == 1;
  return fits ? std::optional(integer) : std::nullopt;
}

// Writes value_of(0), value_of(1), ... to the elements of `to`, as RowSource::Read() describes. Returns the position
// of the first number that its tensor cannot hold; 0 is written instead.
template <typename ValueOf>
std::optional<int64_t> WriteRow(absl::Span<const MutableTensorView> to, const Scale& scale,
                                const ValueOf& value_of) {
  std::optional<int64_t> bad;
  int64_t first = 0;
  for (const MutableTensorView& tensor : to) {
    const int64_t elements = tensor.shape.num_elements();
    if (tensor.dtype == DType::kFloat32) {
      auto* const floats = static_cast<float*>(tensor.data);
      for (int64_t i = 0; i < elements; ++i) floats[i] = scale(static_cast<float>(value_of(first + i)));
    } else {
      WithIntegerType(tensor.dtype, [&](auto zero) {
        using Integer = decltype(zero);
        auto* const integers = static_cast<Integer*>(tensor.data);
        for (int64_t i = 0; i < elements; ++i) {
          const auto integer = ToInteger(value_of(first + i), tensor.dtype);
          if (!integer.has_value() && !bad.has_value()) bad = first + i;
          integers[i] = static_cast<Integer>(integer.value_or(0));
        }
      });
    }
    first += elements;
  }
  return bad;
}

// The error for the number `value` at position `at` of a row. `what` names the row: "x.npy: example 7".
template <typename T>
absl::Status CannotHold(const std::string& what, int64_t at, T value,
                        absl::Span<const MutableTensorView> to) {
  int64_t rest = at;
  size_t tensor = 0;
  while (rest >= to[tensor].shape.num_elements()) rest -= to[tensor++].shape.num_elements();
  std::string text;
  if constexpr (std::is_integral_v<T>) {
    text = absl::StrCat(value);
  } else {
    text = absl::StrCat(static_cast<double>(value));
  }
  return absl::InvalidArgumentError(absl::StrCat(what, ": value ", at, " is ", text,
                                                 ", and the model's input takes whole numbers (",
                                                 NameOf(to[tensor].dtype), ")"));
}

// Writes the `count` values of a ragged part of a row. Without an `end`, what the part lacks to the longest is 0.
template <typename ValueOf>
std::optional<int64_t> WriteRagged(MutableTensorView to, int64_t count, const ValueOf& value_of) {
  if (to.end == nullptr) {
    return WriteRow({&to, 1}, {},
                    [&](int64_t i) { return i < count ? value_of(i) : decltype(value_of(i)){}; });
  }
  *to.end += count;
  to.shape = {count};
  return WriteRow({&to, 1}, {}, value_of);
}

// Divides the elements of several tensors, one after another, among the parts of a row.
class RowCursor {
 public:
  explicit RowCursor(absl::Span<const MutableTensorView> to) : to_(to) {}

  // The next `count` elements, as flat pieces of the tensors.
  absl::InlinedVector<MutableTensorView, 2> Take(int64_t count) {
    absl::InlinedVector<MutableTensorView, 2> pieces;
    while (count > 0 && tensor_ < to_.size()) {
      const MutableTensorView& tensor = to_[tensor_];
      if (tensor.end != nullptr) {  // a ragged input is one part
        pieces.push_back(tensor);
        ++tensor_;
        break;
      }
      const int64_t left = tensor.shape.num_elements() - taken_, taking = count < left ? count : left;
      pieces.push_back(
          {tensor.dtype, {taking}, static_cast<char*>(tensor.data) + taken_ * BytesOf(tensor.dtype)});
      taken_ += taking;
      count -= taking;
      if (taken_ < tensor.shape.num_elements()) continue;
      ++tensor_;
      taken_ = 0;
    }
    return pieces;
  }

 private:
  const absl::Span<const MutableTensorView> to_;
  size_t tensor_ = 0;
  int64_t taken_ = 0;  // elements of the current tensor
};

}  // namespace cairn::data
