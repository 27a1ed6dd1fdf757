// Reads and writes whole files in one call. Any thread.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace cairn {

// NOT_FOUND, PERMISSION_DENIED or UNKNOWN with the path and the system's reason.
absl::StatusOr<std::string> ReadFile(const std::string& path);

// Writes a temporary file in the same directory and renames it to `path`: readers see the old contents or the
// new ones, never a part. A device, pipe or socket is written directly.
absl::Status WriteFileAtomically(const std::string& path, absl::string_view contents);

// Returns the error that WriteFileAtomically() would return now, as far as this can be found out without
// changing `path`. To find out, it creates and removes the temporary file.
absl::Status CheckWritable(const std::string& path);

bool FileExists(const std::string& path);

}  // namespace cairn
