// A whole array as it came from a file. Bytes stay bytes: MNIST's images take 47 MB, not the 188 of floats.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/strings/string_view.h"
#include "common/core/shape.h"

namespace cairn::data {

enum class ElementType { kUint8, kInt8, kInt16, kInt32, kInt64, kFloat32, kFloat64 };

int64_t SizeOf(ElementType type);            // bytes of one element
absl::string_view NameOf(ElementType type);  // "uint8"
inline bool IsInteger(ElementType type) {
  return type <= ElementType::kInt64;
}

struct Array {
  ElementType type = ElementType::kUint8;
  Shape shape;
  std::vector<uint8_t> bytes;  // [shape] elements, row-major, in this machine's byte order
};

}  // namespace cairn::data
