// Which files of a directory belong together.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace cairn::data {

// The files of `directory` that make up one set, sorted by name: `set` + `suffix`, or its pieces, which are
// told apart by numbers: "train-3.csv", "train-00000-of-00002.tfrecord", "train.tfrecord-00000-of-00002.gz".
// Empty where there are none, or where `directory` is none.
std::vector<std::string> FindFiles(const std::string& directory, absl::string_view set,
                                   absl::string_view suffix);

// Whether `path` is itself a file, not a directory, with `suffix` in its name.
bool IsFileNamed(const std::string& path, absl::string_view suffix);

// The validation set's files under the first of its names that there are any of: test, validation.
std::vector<std::string> FindValidationFiles(const std::string& directory, absl::string_view suffix);

}  // namespace cairn::data
