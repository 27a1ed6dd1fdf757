#include "data/array/array_file.h"

#include <array>
#include <cstring>

#include "common/core/status.h"
#include "data/array/idx.h"
#include "data/array/npy.h"
#include "data/file/byte_reader.h"

namespace cairn::data {
namespace {

absl::StatusOr<bool> IsNpy(const std::string& path) {
  CAIRN_ASSIGN_OR_RETURN(const auto reader, OpenPlainOrGzip(path));
  std::array<uint8_t, 6> magic{};
  CAIRN_RETURN_IF_ERROR(reader->Read(absl::MakeSpan(magic)));
  return std::memcmp(magic.data(), "\x93NUMPY", magic.size()) == 0;
}

absl::StatusOr<Array> ReadNpyFile(const std::string& path) {
  CAIRN_ASSIGN_OR_RETURN(const auto reader, OpenPlainOrGzip(path));
  return ReadNpy(*reader);
}

}  // namespace

absl::StatusOr<Array> ReadArrayFile(const std::string& path) {
  const auto npy = IsNpy(path);
  if (npy.ok() && !*npy) return ReadIdx(path);
  auto array = npy.ok() ? ReadNpyFile(path) : absl::StatusOr<Array>(npy.status());
  if (!array.ok()) return Annotate(array.status(), path);
  return array;
}

}  // namespace cairn::data
