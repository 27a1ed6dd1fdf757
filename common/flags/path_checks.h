// Checks that results can be written, before the work that produces them begins. Changes nothing.
// CheckWritable() in files.h checks a single file.
#pragma once

#include <string>

#include "absl/status/status.h"

namespace cairn {

// Returns an error if no files can be created in `directory`. If it does not exist yet, the nearest existing
// directory above it is checked.
absl::Status CheckDirectoryWritable(const std::string& directory);

// `path` itself, absolute, or the nearest directory above it that exists.
std::string NearestExisting(const std::string& path);

}  // namespace cairn
