// Whole files in one call.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace cairn {

// NOT_FOUND, PERMISSION_DENIED or UNKNOWN with the path and the system's reason.
absl::StatusOr<std::string> ReadFile(const std::string& path);

// Writes a sibling and renames it over `path`: readers see the old file or the new one, never a part.
absl::Status WriteFileAtomically(const std::string& path, absl::string_view contents);

// The error that WriteFileAtomically() would meet now, as far as creating its sibling and renaming tell;
// nothing changes.
absl::Status CheckWritable(const std::string& path);

bool FileExists(const std::string& path);

}  // namespace cairn
