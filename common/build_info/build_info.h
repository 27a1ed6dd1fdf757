// The version line of the programs. Only the programs link this target: its source changes with every commit,
// and libraries and tests must not be rebuilt because of that.
#pragma once

#include "absl/strings/string_view.h"

namespace cairn {

// "0.1.0 (commit 8a70336, Release, GCC 12.2, CUDA 12.9)". "commit unknown" if the source was not a Git
// checkout; "no CUDA" if the CUDA backend was not built.
absl::string_view BuildInfo();

}  // namespace cairn
