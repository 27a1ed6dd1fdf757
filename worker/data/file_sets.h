// Which files of a directory belong together.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace cairn::data {

// The files of `directory` that make up one set, sorted by name: `set` + `suffix`, or its pieces, which are
// told apart by numbers: "train-3.csv", "train-00000-of-00002.tfrecord", "train.tfrecord-00000-of-00002.gz".
// Empty where there are none, or where `directory` is none.
std::vector<std::string> FindFiles(const std::string& directory, absl::string_view set,
                                   absl::string_view suffix);

// Checks that `files`, of one set, are each of its pieces once: NOT_FOUND naming the pieces of "name-K-of-N"
// that are missing; INVALID_ARGUMENT naming files that are the same piece, packed or not, or of several sets.
// Otherwise what the user should know of, for the log: numbers that leave a gap. Usually empty.
absl::StatusOr<std::string> CheckPieces(absl::Span<const std::string> files);

// For the log: `path` is one piece of a set of several. Empty where it is not.
std::string PartOfSetRemark(absl::string_view path);

// The training and the validation set of a directory.
struct SetFiles {
  std::vector<std::string> train{}, validation{};  // either may be empty
  std::vector<std::string> remarks{};  // for the log: gaps, and files of these names in neither set
};
// The files with any of `suffixes`, the first of which the others contain. INVALID_ARGUMENT as CheckPieces().
absl::StatusOr<SetFiles> FindSets(const std::string& directory, absl::Span<const char* const> suffixes);

// A warning that lists up to five of the files `unused`, which lie in `directory`. Empty if there are none.
std::string UnusedRemark(const std::string& directory, std::vector<std::string> unused);

// Whether `path` is itself a file, not a directory, with `suffix` in its name.
bool IsFileNamed(const std::string& path, absl::string_view suffix);

// The validation set's files under the first of its names that there are any of: test, validation, valid,
// val.
std::vector<std::string> FindValidationFiles(const std::string& directory, absl::string_view suffix);

}  // namespace cairn::data
