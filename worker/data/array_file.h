// One array from a file of either kind that holds one: .npy or IDX.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "worker/data/array.h"

namespace cairn::data {

// Plain or gzip'd; which kind it is, its first bytes tell. INVALID_ARGUMENT or NOT_FOUND naming the file.
absl::StatusOr<Array> ReadArrayFile(const std::string& path);

}  // namespace cairn::data
