// NumPy's .npy: one array after a header in Python's syntax (numpy/lib/format.py).
//
// Supported: headers of versions 1 to 3; bool, integers of 8 to 64 bits, float16, float32 and float64, of
// either byte order, in C or Fortran order. Pickled objects, structures and other types are refused with a
// specific message.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/core/shape.h"
#include "data/array.h"
#include "data/file/byte_reader.h"

namespace cairn::data {

// Reads header and elements, to the end of `reader`. INVALID_ARGUMENT describing the error, without the
// file's name.
absl::StatusOr<Array> ReadNpy(ByteReader& reader);

// Writes `values` [shape] as float32 or int32, version 1, atomically. Errors name the path.
absl::Status WriteNpy(const std::string& path, const Shape& shape, absl::Span<const float> values);
absl::Status WriteNpy(const std::string& path, const Shape& shape, absl::Span<const int32_t> values);

}  // namespace cairn::data
