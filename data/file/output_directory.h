// The directory of a generated data set.
#pragma once

#include <string>

#include "absl/status/status.h"

namespace cairn::data {

// Creates `directory`, and those above it, if missing. The system's error names it.
absl::Status MakeDirectory(const std::string& directory);

}  // namespace cairn::data
