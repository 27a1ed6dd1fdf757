#include "data/array/idx.h"

#include <array>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/core/files.h"
#include "common/core/status.h"
#include "data/file/byte_reader.h"

namespace cairn::data {
namespace {

constexpr int kMaxIdxRank = 8;

std::optional<ElementType> TypeOfCode(uint8_t code) {
  switch (code) {
    case 0x08:
      return ElementType::kUint8;
    case 0x09:
      return ElementType::kInt8;
    case 0x0B:
      return ElementType::kInt16;
    case 0x0C:
      return ElementType::kInt32;
    case 0x0D:
      return ElementType::kFloat32;
    case 0x0E:
      return ElementType::kFloat64;
    default:
      return std::nullopt;
  }
}

absl::StatusOr<Array> ReadIdxFrom(ByteReader& reader) {
  std::array<uint8_t, 4> magic;
  CAIRN_RETURN_IF_ERROR(ReadExactly(reader, absl::MakeSpan(magic), "its header"));
  const auto type = TypeOfCode(magic[2]);
  if (magic[0] != 0 || magic[1] != 0 || !type) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "is not an IDX file: it starts with %02x %02x %02x %02x", magic[0], magic[1], magic[2], magic[3]));
  }
  const int rank = magic[3];
  if (rank < 1 || rank > kMaxIdxRank) {
    return absl::InvalidArgumentError(absl::StrCat("has ", rank, " dimensions, not 1 to ", kMaxIdxRank));
  }
  Shape shape;
  for (int axis = 0; axis < rank; ++axis) {
    std::array<uint8_t, 4> extent;
    CAIRN_RETURN_IF_ERROR(ReadExactly(reader, absl::MakeSpan(extent), "its header"));
    shape.Append((int64_t{extent[0]} << 24) | (extent[1] << 16) | (extent[2] << 8) | extent[3]);
  }
  return ReadElements(reader, *type, shape, ByteOrder::kBig);
}

}  // namespace

absl::StatusOr<Array> ReadIdx(const std::string& path) {
  auto reader = OpenPlainOrGzip(path);
  if (!reader.ok()) return Annotate(reader.status(), path);
  auto array = ReadIdxFrom(**reader);
  if (!array.ok()) return Annotate(array.status(), path);
  return array;
}

absl::Status WriteIdx(const std::string& path, const Array& array) {
  CAIRN_CHECK(array.type == ElementType::kUint8);
  std::string contents = {0, 0, 0x08, static_cast<char>(array.shape.rank())};
  for (int64_t extent : array.shape.dims()) {
    for (int shift : {24, 16, 8, 0}) contents.push_back(static_cast<char>(extent >> shift));
  }
  contents.append(reinterpret_cast<const char*>(array.bytes.data()), array.bytes.size());
  return WriteFileAtomically(path, contents);
}

}  // namespace cairn::data
