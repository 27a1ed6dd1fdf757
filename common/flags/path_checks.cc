#include "common/flags/path_checks.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"

namespace cairn {

std::string NearestExisting(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code error;
  fs::path existing = fs::absolute(path, error);
  while (!fs::exists(fs::symlink_status(existing, error)) && existing != existing.parent_path()) {
    existing = existing.parent_path();
  }
  return existing.string();
}

absl::Status CheckDirectoryWritable(const std::string& directory) {
  const std::string existing = NearestExisting(directory);
  struct stat info;
  if (stat(existing.c_str(), &info) != 0)
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot write in ", existing));
  if (!S_ISDIR(info.st_mode))
    return absl::FailedPreconditionError(absl::StrCat(existing, " is not a directory"));
  if (access(existing.c_str(), W_OK | X_OK) != 0)
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot write in ", existing));
  return absl::OkStatus();
}

}  // namespace cairn
