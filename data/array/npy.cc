#include "data/array/npy.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "common/core/files.h"
#include "common/core/status.h"

namespace cairn::data {
namespace {

constexpr int64_t kMaxHeaderBytes = 1 << 16;
constexpr int kMaxNpyRank = 8;

struct NpyHeader {
  ElementType type = ElementType::kUint8;
  ByteOrder order = ByteOrder::kLittle;
  bool fortran_order = false;  // the first axis is contiguous, not the last
  Shape shape;
};

// The name of an unsupported type, for error messages: "complex64" for "c8".
std::string NameOfOther(absl::string_view kind) {
  if (kind.empty()) return "unknown";
  int64_t bytes = 0;
  const bool sized = absl::SimpleAtoi(kind.substr(1), &bytes);
  switch (kind[0]) {
    case 'c':
      return sized ? absl::StrCat("complex", 8 * bytes) : "complex";
    case 'f':
      return sized ? absl::StrCat("float", 8 * bytes) : "float";
    case 'U':
    case 'S':
      return "a string";
    case 'M':
      return "datetime64";
    case 'm':
      return "timedelta64";
    case 'V':
      return "void: raw bytes, such as bfloat16";
    default:
      return "unknown";
  }
}

absl::Status DescribeType(absl::string_view descr, NpyHeader& header) {
  struct Row {
    const char* kind;
    ElementType type;
  };
  constexpr Row kRows[] = {
      {"u1", ElementType::kUint8},   {"b1", ElementType::kBool},    {"i1", ElementType::kInt8},
      {"u2", ElementType::kUint16},  {"i2", ElementType::kInt16},   {"u4", ElementType::kUint32},
      {"i4", ElementType::kInt32},   {"u8", ElementType::kUint64},  {"i8", ElementType::kInt64},
      {"f2", ElementType::kFloat16}, {"f4", ElementType::kFloat32}, {"f8", ElementType::kFloat64}};
  if (absl::EndsWith(descr, "O")) {
    return absl::InvalidArgumentError("holds pickled Python objects (dtype object), which are not supported");
  }
  const bool ordered = !descr.empty() && absl::StrContains("<>|=", descr.substr(0, 1));
  const absl::string_view kind = ordered ? descr.substr(1) : descr;
  for (const Row& row : kRows) {
    if (!ordered || kind != row.kind) continue;
    header.type = row.type;
    header.order = descr[0] == '>' ? ByteOrder::kBig : ByteOrder::kLittle;
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("has dtype '", absl::CHexEscape(descr), "' (", NameOfOther(kind),
                   "), which is not supported; bool, integers, float16, float32 and float64 are"));
}

// Parses the subset of Python's syntax that NumPy writes here:
//
//   {'descr': '<f4', 'fortran_order': False, 'shape': (60000, 28, 28), }
//
// padded with spaces and ended by a newline.
class HeaderParser {
 public:
  explicit HeaderParser(absl::string_view text) : text_(text) {}

  absl::StatusOr<NpyHeader> Parse() {
    NpyHeader header;
    bool has_descr = false, has_order = false, has_shape = false;
    if (!Take("{")) return Malformed("it is not a dictionary");
    while (!Take("}")) {
      const auto key = TakeString();
      if (!key || !Take(":")) return Malformed("a key is missing");
      bool* seen = *key == "descr"           ? &has_descr
                   : *key == "fortran_order" ? &has_order
                   : *key == "shape"         ? &has_shape
                                             : nullptr;
      if (seen == nullptr) return Malformed(absl::StrCat("unknown key '", absl::CHexEscape(*key), "'"));
      if (std::exchange(*seen, true)) return Malformed(absl::StrCat("'", *key, "' occurs twice"));
      if (*key == "descr") {
        if (Take("[")) {
          return absl::InvalidArgumentError("holds structures (a record dtype), which are not supported");
        }
        const auto descr = TakeString();
        if (!descr) return Malformed("descr is not a string");
        CAIRN_RETURN_IF_ERROR(DescribeType(*descr, header));
      } else if (*key == "fortran_order") {
        header.fortran_order = Take("True");
        if (!header.fortran_order && !Take("False"))
          return Malformed("fortran_order is neither True nor False");
      } else {
        CAIRN_ASSIGN_OR_RETURN(header.shape, TakeShape());
      }
      if (!Take(",") && !StartsWith("}")) return Malformed("a comma is missing");
    }
    SkipSpace();
    if (!text_.empty()) return Malformed("text follows the dictionary");
    if (!has_descr || !has_order || !has_shape) return Malformed("descr, fortran_order or shape is missing");
    return header;
  }

 private:
  static absl::Status Malformed(absl::string_view what) {
    return absl::InvalidArgumentError(absl::StrCat("has a malformed npy header: ", what));
  }
  void SkipSpace() {
    while (!text_.empty() && absl::StrContains(" \t\n\r", text_.substr(0, 1))) text_.remove_prefix(1);
  }
  bool StartsWith(absl::string_view token) {
    SkipSpace();
    return absl::StartsWith(text_, token);
  }
  bool Take(absl::string_view token) {
    SkipSpace();
    return absl::ConsumePrefix(&text_, token);
  }
  std::optional<absl::string_view> TakeString() {
    SkipSpace();
    if (text_.empty() || (text_[0] != '\'' && text_[0] != '"')) return std::nullopt;
    const size_t end = text_.find(text_[0], 1);
    if (end == absl::string_view::npos) return std::nullopt;
    const absl::string_view inside = text_.substr(1, end - 1);
    text_.remove_prefix(end + 1);
    return inside;
  }
  absl::StatusOr<Shape> TakeShape() {
    Shape shape;
    if (!Take("(")) return Malformed("shape is not a tuple");
    while (!Take(")")) {
      SkipSpace();
      size_t digits = 0;
      while (digits < text_.size() && text_[digits] >= '0' && text_[digits] <= '9') ++digits;
      int64_t extent = 0;
      if (!absl::SimpleAtoi(text_.substr(0, digits), &extent)) return Malformed("an extent is not a number");
      text_.remove_prefix(digits);
      absl::ConsumePrefix(&text_, "L");  // Python 2's long
      if (shape.rank() == kMaxNpyRank)
        return Malformed(absl::StrCat("more than ", kMaxNpyRank, " dimensions"));
      shape.Append(extent);
      if (!Take(",") && !StartsWith(")")) return Malformed("a comma is missing in shape");
    }
    return shape;
  }

  absl::string_view text_;
};

// Converts elements of `size` bytes each from Fortran order to C order. Blocks of the first axis, which is
// contiguous in the source, are copied together.
std::vector<uint8_t> ToRowMajor(const SharedBytes& source, const Shape& shape, int64_t size) {
  constexpr int64_t kBlock = 64;
  const int64_t rows = shape[0], row_elements = shape.row_elements();
  std::vector<uint8_t> result(source.size());
  for (int64_t first = 0; first < rows; first += kBlock) {
    const int64_t count = std::min(kBlock, rows - first);
    // The index on each axis but the first.
    std::vector<int64_t> position(static_cast<size_t>(shape.rank()), 0);
    for (int64_t i = 0; i < row_elements; ++i) {
      int64_t target = 0;  // position within a row
      for (int axis = 1; axis < shape.rank(); ++axis) {
        target = target * shape[axis] + position[static_cast<size_t>(axis)];
      }
      for (int64_t row = first; row < first + count; ++row) {
        std::memcpy(result.data() + (row * row_elements + target) * size,
                    source.data() + (i * rows + row) * size, static_cast<size_t>(size));
      }
      for (int axis = 1; axis < shape.rank() && ++position[static_cast<size_t>(axis)] == shape[axis];
           ++axis) {
        position[static_cast<size_t>(axis)] = 0;
      }
    }
  }
  return result;
}

absl::Status MakeRowMajor(Array& array) {
  if (array.shape.rank() < 2 || array.bytes.size() == 0) return absl::OkStatus();
  if (static_cast<int64_t>(array.bytes.size()) > kMaxArrayBytes) {
    return absl::InvalidArgumentError(absl::StrCat("is in Fortran order and has ", array.bytes.size(),
                                                   " bytes, more than the limit of ", kMaxArrayBytes,
                                                   "; save it with numpy.ascontiguousarray"));
  }
  array.bytes = SharedBytes(ToRowMajor(array.bytes, array.shape, SizeOf(array.type)));
  return absl::OkStatus();
}

// `type`: Python's name of the type of the elements in `bytes` [shape].
absl::Status WriteArray(const std::string& path, absl::string_view type, const Shape& shape,
                        absl::string_view bytes) {
  std::string text = absl::StrCat("{'descr': '", type, "', 'fortran_order': False, 'shape': (",
                                  absl::StrJoin(shape.dims(), ", "), shape.rank() == 1 ? ",), }" : "), }");
  // The values begin at a multiple of 64 bytes, counted from the magic number.
  constexpr size_t kBefore = 10, kAlignment = 64;
  text.append(kAlignment - 1 - (kBefore + text.size()) % kAlignment, ' ');
  text.push_back('\n');
  std::string contents("\x93NUMPY\x01\0", 8);
  contents.push_back(static_cast<char>(text.size() & 0xff));
  contents.push_back(static_cast<char>(text.size() >> 8));
  contents += text;
  absl::StrAppend(&contents, bytes);
  return WriteFileAtomically(path, contents);
}

template <typename T>
absl::string_view BytesOf(const Shape& shape, absl::Span<const T> values) {
  CAIRN_CHECK(shape.num_elements() == static_cast<int64_t>(values.size()));
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

}  // namespace

absl::StatusOr<Array> ReadNpy(ByteReader& reader) {
  std::array<uint8_t, 8> magic;
  CAIRN_RETURN_IF_ERROR(ReadExactly(reader, absl::MakeSpan(magic), "its npy header"));
  if (std::memcmp(magic.data(), "\x93NUMPY", 6) != 0) {
    return absl::InvalidArgumentError("is not an npy array: its magic number is wrong");
  }
  const int version = magic[6];
  if (version < 1 || version > 3) {
    return absl::InvalidArgumentError(absl::StrCat("has npy version ", version, "; 1 to 3 are supported"));
  }
  std::array<uint8_t, 4> size{};
  CAIRN_RETURN_IF_ERROR(
      ReadExactly(reader, absl::MakeSpan(size).subspan(0, version == 1 ? 2 : 4), "its npy header"));
  const int64_t header_bytes = size[0] | (size[1] << 8) | (size[2] << 16) | (int64_t{size[3]} << 24);
  if (header_bytes > kMaxHeaderBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("has an oversized npy header of ", header_bytes, " bytes"));
  }
  std::string text(static_cast<size_t>(header_bytes), '\0');
  CAIRN_RETURN_IF_ERROR(
      ReadExactly(reader, {reinterpret_cast<uint8_t*>(text.data()), text.size()}, "its npy header"));
  CAIRN_ASSIGN_OR_RETURN(const NpyHeader header, HeaderParser(text).Parse());
  CAIRN_ASSIGN_OR_RETURN(Array array, ReadElements(reader, header.type, header.shape, header.order));
  if (header.fortran_order) CAIRN_RETURN_IF_ERROR(MakeRowMajor(array));
  return array;
}

absl::Status WriteNpy(const std::string& path, const Shape& shape, absl::Span<const float> values) {
  return WriteArray(path, "<f4", shape, BytesOf(shape, values));
}

absl::Status WriteNpy(const std::string& path, const Shape& shape, absl::Span<const int32_t> values) {
  return WriteArray(path, "<i4", shape, BytesOf(shape, values));
}

}  // namespace cairn::data
