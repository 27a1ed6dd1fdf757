// A whole array, in the element type of its file. MNIST's images stay bytes and take 47 MB, not 188 MB as
// floats.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/core/shape.h"

namespace cairn::data {

// Integer types come first.
enum class ElementType {
  kUint8,
  kBool,  // one byte, 0 or 1
  kInt8,
  kUint16,
  kInt16,
  kUint32,
  kInt32,
  kUint64,
  kInt64,
  kFloat16,
  kFloat32,
  kFloat64
};

int64_t SizeOf(ElementType type);            // bytes of one element
absl::string_view NameOf(ElementType type);  // "uint8"
inline bool IsInteger(ElementType type) {
  return type <= ElementType::kInt64;
}

// A float16 (IEEE 754 binary16) as stored.
struct Half {
  uint16_t bits = 0;
  operator float() const {  // NOLINT(google-explicit-constructor): every float16 is a float
    const int exponent = bits >> 10 & 0x1F;
    const int fraction = bits & 0x3FF;
    const uint32_t sign = uint32_t{bits & 0x8000u} << 16;
    if (exponent == 0) {
      const float magnitude = static_cast<float>(fraction) * 0x1p-24f;
      return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(magnitude));
    }
    const uint32_t biased = exponent == 0x1F ? 0xFF : static_cast<uint32_t>(exponent) + 127 - 15;
    return std::bit_cast<float>(sign | biased << 23 | static_cast<uint32_t>(fraction) << 13);
  }
};

// Calls `body(T{})` with T the C++ type of `type`.
template <typename Body>
auto WithType(ElementType type, Body body) {
  switch (type) {
    case ElementType::kUint8:
    case ElementType::kBool:
      return body(uint8_t{});
    case ElementType::kInt8:
      return body(int8_t{});
    case ElementType::kUint16:
      return body(uint16_t{});
    case ElementType::kInt16:
      return body(int16_t{});
    case ElementType::kUint32:
      return body(uint32_t{});
    case ElementType::kInt32:
      return body(int32_t{});
    case ElementType::kUint64:
      return body(uint64_t{});
    case ElementType::kInt64:
      return body(int64_t{});
    case ElementType::kFloat16:
      return body(Half{});
    case ElementType::kFloat32:
      return body(float{});
    case ElementType::kFloat64:
      break;
  }
  return body(double{});
}

// Element `index` of an array that need not be aligned.
template <typename T>
T ElementAt(const uint8_t* bytes, int64_t index) {
  T value;
  std::memcpy(&value, bytes + index * static_cast<int64_t>(sizeof(T)), sizeof(T));
  return value;
}

// Immutable bytes, in memory or in a mapped file. Copies share the bytes, so that an array can outlive its
// reader.
class SharedBytes {
 public:
  using value_type = uint8_t;
  using const_iterator = const uint8_t*;

  SharedBytes() = default;
  explicit SharedBytes(std::vector<uint8_t> own)
      : SharedBytes(std::make_shared<const std::vector<uint8_t>>(std::move(own))) {}
  // `owner` keeps the bytes of `span` alive.
  SharedBytes(absl::Span<const uint8_t> span, std::shared_ptr<const void> owner)
      : span_(span), owner_(std::move(owner)) {}

  absl::Span<const uint8_t> span() const { return span_; }
  const uint8_t* data() const { return span_.data(); }
  size_t size() const { return span_.size(); }
  const_iterator begin() const { return span_.data(); }
  const_iterator end() const { return span_.data() + span_.size(); }

 private:
  explicit SharedBytes(std::shared_ptr<const std::vector<uint8_t>> own)
      : span_(*own), owner_(std::move(own)) {}

  absl::Span<const uint8_t> span_;
  std::shared_ptr<const void> owner_;
};

struct Array {
  ElementType type = ElementType::kUint8;
  Shape shape;
  SharedBytes bytes;  // `shape` elements, row-major, in this machine's byte order
};

}  // namespace cairn::data
