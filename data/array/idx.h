// The IDX format of MNIST (http://yann.lecun.com/exdb/mnist): two zero bytes, a type, the rank, the extents
// as big-endian 32-bit numbers, then the elements, big-endian and row-major.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "data/array.h"

namespace cairn::data {

// Reads a plain or gzipped file. INVALID_ARGUMENT naming the file if it is not exactly one IDX array;
// NOT_FOUND if there is no such file.
absl::StatusOr<Array> ReadIdx(const std::string& path);

// Writes `array`, which must be uint8, as a plain file, atomically.
absl::Status WriteIdx(const std::string& path, const Array& array);

}  // namespace cairn::data
