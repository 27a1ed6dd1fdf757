// The path of the repository, for tests that read its files. Only one source is compiled with it: a path in
// every command line would keep compiler caches from serving another clone.
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace cairn {

// The absolute path of `path`, which is relative to the repository; of the repository itself when empty.
std::string InSource(absl::string_view path = "");

}  // namespace cairn
