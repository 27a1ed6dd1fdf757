// What the control groups of this process allow it, version 1 or 2.
#pragma once

#include <optional>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/strings/string_view.h"

namespace cairn {

// The limit that the directory of one control group states; none where it states no limit.
using CgroupLimit = absl::FunctionRef<std::optional<double>(const std::string& directory)>;

// The smallest limit of our control group and those above it, as `version1` reads it from directories of
// `controller` ("cpu", "memory") or `version2` from those of the one hierarchy; none when unlimited. `root`
// stands before /proc and /sys: "" in earnest, a directory in tests.
std::optional<double> TightestCgroupLimit(const std::string& root, absl::string_view controller,
                                          CgroupLimit version1, CgroupLimit version2);

}  // namespace cairn
