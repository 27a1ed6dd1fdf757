#include "tests/support/source_dir.h"

#include "absl/strings/str_cat.h"

namespace cairn {

std::string InSource(absl::string_view path) {
  return path.empty() ? CAIRN_SOURCE_DIR : absl::StrCat(CAIRN_SOURCE_DIR "/", path);
}

}  // namespace cairn
