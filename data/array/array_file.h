// Reads one array from a .npy or IDX file.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "data/array.h"

namespace cairn::data {

// Reads a plain or gzipped file, whose first bytes determine the format. INVALID_ARGUMENT or NOT_FOUND naming
// the file.
absl::StatusOr<Array> ReadArrayFile(const std::string& path);

}  // namespace cairn::data
