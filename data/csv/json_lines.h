// JSON lines: files with one object in each line, {"text": "a, b", "stars": 4}, as the records of a CSV file.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace cairn::data {

struct JsonLines {
  std::string csv;  // with commas; the first record has the names of the fields, in alphabetical order
  std::vector<int64_t> lines;  // [record of csv] its line in the file, from 1; that of the names is 1
};

// Converts a file. Its fields are those of the first object; one that a later object lacks, or that is null, is an
// empty field of CSV. true and false become 1 and 0, and a list becomes its values with `|` between them.
// INVALID_ARGUMENT naming `path`, the line and the field for any other value, and for an object with more fields.
absl::StatusOr<JsonLines> ReadJsonLines(absl::string_view text, const std::string& path);

}  // namespace cairn::data
