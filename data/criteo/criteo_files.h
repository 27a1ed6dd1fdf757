// Finds the files of a Criteo click log.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "data/file_sets.h"

namespace cairn::data {

// Whether `path` is a file named NAME.txt or day_N, plain or with ".gz".
bool IsCriteoFile(const std::string& path);

// The sets at `path`: a file itself; train*.txt, and test*.txt, validation*.txt, valid*.txt or val*.txt; or else the
// days day_0, day_1, ..., of which the last is the validation set if there are several. Errors are those of FindSets().
absl::StatusOr<SetFiles> FindCriteoFiles(const std::string& path);

}  // namespace cairn::data
