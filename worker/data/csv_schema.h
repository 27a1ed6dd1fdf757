// The columns of CSV files, inferred from the first file of the training set: the separator of fields,
// whether the first record is a header, and which columns are the label and the inputs.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "worker/data/dataset.h"
#include "worker/data/decimal.h"

namespace cairn::data {

using CsvFields = std::vector<absl::string_view>;

struct CsvSchema {
  char separator = ',';
  bool has_header = false;
  std::vector<std::string> columns{};  // names; without a header their numbers, from 0
  std::optional<size_t> label{};       // index into columns; nullopt if examples have no label
  std::vector<size_t> features{};      // indices into columns, in the order of the inputs
  bool by_position = false;  // they are those at the places of options.trained_columns, for want of names
  std::optional<float> missing_value{};  // what an empty field stands for; nullopt: it is a fault
  DecimalReader decimals{false};         // reads the numbers of all files of the data set
};

// The separator of `text`: the one among comma, semicolon and tab that splits its first records into the same
// number of fields, at least two, most of them numbers; a comma if none does.
char DetectCsvSeparator(absl::string_view text);

// A separator by name (comma, semicolon, tab, space) or as one character. INVALID_ARGUMENT for what cannot be
// one: letters, digits, quotes, signs, points and '#'.
absl::StatusOr<char> ParseCsvSeparator(absl::string_view text);

// An empty field, or what pandas and R write for a missing value.
bool IsMissing(absl::string_view field);

// True if the record names columns: it has the label column's name, or else none of its fields is a number.
bool IsCsvHeader(const CsvFields& fields, const DataOptions& options);

// `first`: the first record, or with `has_header` the one that names the columns. INVALID_ARGUMENT for
// columns that are missing or occur twice, and for options that contradict options.trained_columns.
//
// Trained columns are found by name where both files have a header, in any order. Otherwise they are those at
// the same positions, and INVALID_ARGUMENT where the number of columns differs; a column that only held the
// label may be missing where labels are optional.
absl::StatusOr<CsvSchema> MakeCsvSchema(const CsvFields& first, bool has_header, char separator,
                                        const DataOptions& options);

}  // namespace cairn::data
