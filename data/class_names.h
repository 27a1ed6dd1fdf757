// The file of class names next to a trained model whose labels are words or folders. It has one name per
// line, in the order of the class indices. A backslash, LF and CR within a name are written as \\, \n and \r.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace cairn::data {

inline constexpr char kClassNamesFile[] = "class_names.txt";

// "2 classes: 0 'cat', 1 'dog'". If there are many classes, only the first are listed.
std::string DescribeClasses(absl::Span<const std::string> names);

// Writes `directory`/class_names.txt, or removes it if there are no names. Errors name the file.
absl::Status WriteClassNames(const std::string& directory, absl::Span<const std::string> names);

// Reads `directory`/class_names.txt. Returns an empty list if it does not exist.
absl::StatusOr<std::vector<std::string>> ReadClassNames(const std::string& directory);

}  // namespace cairn::data
