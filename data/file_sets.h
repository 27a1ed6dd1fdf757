// Finds the files of a directory that belong together, by the numbers in their names.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace cairn::data {

// The files of `directory` that form one set, sorted by name: `set` + `suffix`, or numbered pieces of it:
// "train-3.csv", "train-00000-of-00002.tfrecord", "train.tfrecord-00000-of-00002.gz". Empty if there are
// none, or if `directory` is not a directory.
std::vector<std::string> FindFiles(const std::string& directory, absl::string_view set,
                                   absl::string_view suffix);

// Whether `stem`, a file's name before its suffix, is that of a set (train, test, validation, valid or val) or of a
// numbered piece of it: "train-3", "train_0", "test-00000-of-00002".
bool IsSetName(absl::string_view stem);

// The number that `digits` are; nullopt if other characters, or more digits than int64 holds, are among them, or if
// there are none.
std::optional<int64_t> WholeNumber(absl::string_view digits);

// 3 for "day_3"; nullopt for other names.
std::optional<int64_t> DayIn(absl::string_view stem);

// The files of `directory` that are named day_N and one of `suffixes`, sorted by N. Empty if there are none, or if
// `directory` is not a directory.
std::vector<std::string> FindDays(const std::string& directory, absl::Span<const char* const> suffixes);

// Checks that `files` contain each piece of one set once. NOT_FOUND naming the missing pieces of
// "name-K-of-N"; INVALID_ARGUMENT naming files that are the same piece, compressed or not, or that belong to
// different sets. Otherwise returns a remark for the log, for example about gaps in the numbers, or an empty
// string.
absl::StatusOr<std::string> CheckPieces(absl::Span<const std::string> files);

// A remark for the log if `path` is only one of several pieces of a set. Otherwise empty.
std::string IncompleteSetRemark(absl::string_view path);

// The training and the validation set of a directory.
struct SetFiles {
  std::vector<std::string> train{}, validation{};  // either may be empty
  std::vector<std::string> remarks{};  // for the log: gaps in the numbers, and files that are in neither set
};
// Finds the files of both sets with any of `suffixes`. Every suffix must contain the first one. Errors are
// those of CheckPieces().
absl::StatusOr<SetFiles> FindSets(const std::string& directory, absl::Span<const char* const> suffixes);

// A warning that lists up to five of the files `unused` of `directory`. Empty if there are none.
std::string UnusedRemark(const std::string& directory, std::vector<std::string> unused);

// Whether `path` is a file, not a directory, with `suffix` in its name.
bool IsFileNamed(const std::string& path, absl::string_view suffix);

// The validation set's files. The set is the first of test, validation, valid and val that has files.
std::vector<std::string> FindValidationFiles(const std::string& directory, absl::string_view suffix);

}  // namespace cairn::data
