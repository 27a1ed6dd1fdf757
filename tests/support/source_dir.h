// Where tests find the repository's files. Told to one source alone: a path in every command line would keep
// compiler caches from serving a clone elsewhere.
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace cairn {

// The absolute path of `path`, which is relative to the repository; of the repository itself when empty.
std::string InSource(absl::string_view path = "");

}  // namespace cairn
