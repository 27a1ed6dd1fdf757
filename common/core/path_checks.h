// Whether results can be written, tried before the work that makes them. Changes nothing. CheckWritable() of
// files.h is the same for one file.
#pragma once

#include <string>

#include "absl/status/status.h"

namespace cairn {

// Whether files can be created in `directory`, which need not exist yet: then the nearest directory above it
// counts.
absl::Status CheckDirectoryWritable(const std::string& directory);

// `path` itself, absolute, or the nearest directory above it that exists.
std::string NearestExisting(const std::string& path);

}  // namespace cairn
