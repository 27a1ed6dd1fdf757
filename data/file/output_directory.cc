#include "data/file/output_directory.h"

#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"

namespace cairn::data {

absl::Status MakeDirectory(const std::string& directory) {
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  if (!error) return absl::OkStatus();
  return absl::ErrnoToStatus(error.value(), absl::StrCat("cannot make the directory ", directory));
}

}  // namespace cairn::data
