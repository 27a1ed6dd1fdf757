// Resource limits of the control groups (version 1 or 2) of this process.
#pragma once

#include <optional>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/strings/string_view.h"

namespace cairn {

// Reads the limit from the directory of one control group; nullopt if there is no limit.
using CgroupLimit = absl::FunctionRef<std::optional<double>(const std::string& directory)>;

// The smallest limit of this process's control group and its ancestors; nullopt if unlimited. `version1`
// reads the limit from a directory of `controller` ("cpu", "memory"), `version2` from one of the unified
// hierarchy. `root` is prepended to /proc and /sys: "" in production, a directory in tests.
std::optional<double> TightestCgroupLimit(const std::string& root, absl::string_view controller,
                                          CgroupLimit version1, CgroupLimit version2);

}  // namespace cairn
