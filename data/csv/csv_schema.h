// The columns of CSV files, inferred from the first file of the training set: the separator of fields,
// whether the first record is a header, and which columns are the label and the inputs.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "data/csv/decimal.h"
#include "data/dataset.h"

namespace cairn::data {

using CsvFields = std::vector<absl::string_view>;

struct CsvSchema {
  char separator = ',';
  bool has_header = false;
  std::vector<std::string> columns{};  // names; without a header their numbers, from 0
  std::optional<size_t> label{};       // index into columns; nullopt if examples have no label
  std::vector<size_t> features{};      // indices into columns, in the order of the inputs
  // Set if the columns are selected by the positions in options.trained_columns, since one of the files has
  // no header.
  bool by_position = false;
  // The value of an empty field; nullopt: an empty field is an error.
  std::optional<float> missing_value{};
  bool hash_ids = false;          // ids are HashedId() of the fields, with the column's name as the salt
  DecimalReader decimals{false};  // reads the numbers of all files of the data set
};

// The separator of `text`: whichever of comma, semicolon and tab splits the first records best, that is into
// equally many fields of which most are numbers. A comma if no separator splits the first record.
char DetectCsvSeparator(absl::string_view text);

// Parses a separator given by name (comma, semicolon, tab, space) or as one character. INVALID_ARGUMENT for
// letters, digits, quotes, signs, points and '#', which cannot be separators.
absl::StatusOr<char> ParseCsvSeparator(absl::string_view text);

// True for an empty field, or a missing value as pandas and R write it.
bool IsMissing(absl::string_view field);

// The numbers in a field of a ragged input, which blanks or '|' separate: {"3", "5"} for "3|5" or "3 5". None for an
// empty field; nothing between two '|' is an empty number.
std::vector<absl::string_view> NumbersOf(absl::string_view field);

// An id with its weight: {"3", "0.5"} for "3:0.5", and {"3", "1"} for "3".
std::pair<absl::string_view, absl::string_view> IdAndWeight(absl::string_view number);

// True if the record names columns: it contains a name of the label column, or none of its fields is a number
// or a missing value.
bool IsCsvHeader(const CsvFields& fields, const DataOptions& options);

// The names of RecBole's columns without their types: {"user_id", "rating"} for {"user_id:token", "rating:float"}. Or
// `fields`, if one of them has none of its types: token, token_seq, float, float_seq. The texts are parts of `fields`.
CsvFields WithoutTypes(const CsvFields& fields);

// `first` is the first record or, with `has_header`, the record that names the columns. `joined`: further columns,
// from other files; none of them is the label unless an option names it. INVALID_ARGUMENT for columns that are missing
// or occur twice, and for options that contradict options.trained_columns.
//
// The columns of options.trained_columns are found by name, in any order, if this file and the training files
// have a header. Otherwise they are found by position, and a different number of columns is INVALID_ARGUMENT;
// a column that only held the label may be missing if labels are optional.
absl::StatusOr<CsvSchema> MakeCsvSchema(const CsvFields& first, bool has_header, char separator,
                                        const DataOptions& options,
                                        const std::vector<std::string>& joined = {});

}  // namespace cairn::data
