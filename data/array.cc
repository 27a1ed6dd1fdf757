#include "data/array.h"

namespace cairn::data {

int64_t SizeOf(ElementType type) {
  switch (type) {
    case ElementType::kUint8:
    case ElementType::kBool:
    case ElementType::kInt8:
      return 1;
    case ElementType::kUint16:
    case ElementType::kInt16:
    case ElementType::kFloat16:
      return 2;
    case ElementType::kUint32:
    case ElementType::kInt32:
    case ElementType::kFloat32:
      return 4;
    case ElementType::kUint64:
    case ElementType::kInt64:
    case ElementType::kFloat64:
      return 8;
  }
  return 1;
}

absl::string_view NameOf(ElementType type) {
  switch (type) {
    case ElementType::kUint8:
      return "uint8";
    case ElementType::kBool:
      return "bool";
    case ElementType::kInt8:
      return "int8";
    case ElementType::kUint16:
      return "uint16";
    case ElementType::kInt16:
      return "int16";
    case ElementType::kUint32:
      return "uint32";
    case ElementType::kInt32:
      return "int32";
    case ElementType::kUint64:
      return "uint64";
    case ElementType::kInt64:
      return "int64";
    case ElementType::kFloat16:
      return "float16";
    case ElementType::kFloat32:
      return "float32";
    case ElementType::kFloat64:
      return "float64";
  }
  return "unknown";
}

}  // namespace cairn::data
