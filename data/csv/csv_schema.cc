#include "data/csv/csv_schema.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/core/status.h"
#include "data/csv/csv.h"
#include "data/file_sets.h"
#include "data/hashed_id.h"

namespace cairn::data {
namespace {

constexpr const char* kLabelNames[] = {"label", "target", "class"};

bool IsLabelName(absl::string_view name) {
  return std::any_of(std::begin(kLabelNames), std::end(kLabelNames),
                     [&](const char* known) { return absl::EqualsIgnoreCase(name, known); });
}

bool IsNumber(absl::string_view field, char separator) {
  return ParseDecimal(field, separator != ',').has_value();
}

// The index of column `name`; nullopt if there is none, INVALID_ARGUMENT if there are several.
absl::StatusOr<std::optional<size_t>> FindByName(const std::vector<std::string>& columns,
                                                 const std::string& name) {
  const auto found = std::find(columns.begin(), columns.end(), name);
  if (found == columns.end()) return std::nullopt;
  if (std::find(found + 1, columns.end(), name) != columns.end()) {
    return absl::InvalidArgumentError(absl::StrCat("has more than one column '", name, "'"));
  }
  return static_cast<size_t>(found - columns.begin());
}

absl::Status NoColumn(const std::vector<std::string>& columns, absl::string_view wanted) {
  return absl::InvalidArgumentError(
      absl::StrCat("has no column ", wanted, "; it has: ", ListColumns(columns)));
}

// Finds a column by name, or by index if no column has that name.
absl::StatusOr<size_t> FindColumn(const std::vector<std::string>& columns, const std::string& key) {
  CAIRN_ASSIGN_OR_RETURN(const auto named, FindByName(columns, key));
  if (named) return *named;
  const auto index = WholeNumber(key);
  if (index && static_cast<size_t>(*index) < columns.size()) return static_cast<size_t>(*index);
  return NoColumn(columns, absl::StrCat("'", key, "'"));
}

// The label's column if no option names it: the column with a usual label name, otherwise the last column. If
// labels are optional, the last column is the label only if no option selects the inputs and there is one
// more column than the model has inputs.
absl::StatusOr<std::optional<size_t>> FindLabel(const std::vector<std::string>& columns,
                                                const DataOptions& options) {
  std::optional<size_t> label;
  for (size_t i = 0; i < columns.size(); ++i) {
    if (!IsLabelName(columns[i])) continue;
    if (label) {
      return absl::InvalidArgumentError(absl::StrCat("columns '", columns[*label], "' and '", columns[i],
                                                     "' could both be the label; --label_column decides"));
    }
    label = i;
  }
  if (label) return label;
  if (options.labels_optional &&
      (!options.feature_columns.empty() ||
       static_cast<int64_t>(columns.size()) != options.example_shape.num_elements() + 1)) {
    return std::nullopt;
  }
  return columns.size() - 1;
}

// How badly `separator` suits the first records of `text`: the number of fields that are not numbers, plus
// the number of records whose field count differs from the first. nullopt if the first record is a single
// field.
std::optional<int64_t> Misfits(absl::string_view text, char separator) {
  constexpr int kMaxRecords = 20;
  CsvReader reader(text, separator);
  size_t columns = 0;
  int64_t misfits = 0;
  CsvFields fields;
  for (int records = 0; records < kMaxRecords;) {
    const auto more = reader.Next(fields);
    if (more.ok() ? !*more : absl::IsDataLoss(more.status())) break;
    if (more.ok() && reader.comment()) continue;
    ++records;
    if (columns == 0) columns = fields.size();
    if (columns < 2) return std::nullopt;
    if (!more.ok() || fields.size() != columns) ++misfits;
    misfits += std::count_if(fields.begin(), fields.end(), [separator](absl::string_view field) {
      return !IsNumber(field, separator) && !IsMissing(field);
    });
  }
  if (columns < 2) return std::nullopt;
  return misfits;
}

// Selected columns of one file.
struct Selection {
  std::optional<size_t> label{};
  std::vector<size_t> inputs{};
};

absl::StatusOr<Selection> FindTrainedByName(const Columns& trained, const std::vector<std::string>& columns,
                                            const DataOptions& options) {
  if (columns == trained.names) return Selection{trained.label, trained.inputs};
  Selection found;
  for (const size_t input : trained.inputs) {
    CAIRN_ASSIGN_OR_RETURN(const auto column, FindByName(columns, trained.names[input]));
    if (!column) {
      return NoColumn(columns, absl::StrCat("'", trained.names[input], "', which the model was trained on"));
    }
    found.inputs.push_back(*column);
  }
  if (!trained.label) return found;
  CAIRN_ASSIGN_OR_RETURN(found.label, FindByName(columns, trained.names[*trained.label]));
  if (found.label || options.labels_optional) return found;
  return NoColumn(columns, absl::StrCat("'", trained.names[*trained.label], "', the label in training"));
}

absl::StatusOr<Selection> FindTrainedByPosition(const Columns& trained,
                                                const std::vector<std::string>& columns, bool has_header,
                                                const DataOptions& options) {
  const bool without_label =
      trained.label && options.labels_optional && columns.size() + 1 == trained.names.size();
  if (columns.size() != trained.names.size() && !without_label) {
    return absl::InvalidArgumentError(absl::StrCat(
        "has ", columns.size(), " columns, but the training set had ", trained.names.size(), " (",
        ListColumns(trained.names), "), and ",
        has_header ? "its files had no header" : "this file has no header", " to identify the columns by"));
  }
  Selection found;
  if (!without_label) found.label = trained.label;
  for (const size_t input : trained.inputs) {
    found.inputs.push_back(without_label && input > *trained.label ? input - 1 : input);
  }
  for (const size_t input : found.inputs) {
    if (!has_header || !IsLabelName(columns[input])) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("column ", input, " is '", columns[input],
                     "', but was an input in training, whose files had no header: the order differs"));
  }
  return found;
}

// The columns of a file that correspond to options.trained_columns.
absl::StatusOr<Selection> FindTrained(const std::vector<std::string>& columns, bool has_header,
                                      const DataOptions& options) {
  const Columns& trained = *options.trained_columns;
  return has_header && trained.named ? FindTrainedByName(trained, columns, options)
                                     : FindTrainedByPosition(trained, columns, has_header, options);
}

// INVALID_ARGUMENT if `schema`, made from the options, has other inputs, another label or another missing
// value than in training.
absl::Status CheckAsTrained(const CsvSchema& schema, const Selection& trained,
                            const std::optional<float>& missing_value) {
  if (schema.features != trained.inputs) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--feature_column: the inputs are columns ", ListColumns(schema.columns, schema.features),
        ", but in training they were ", ListColumns(schema.columns, trained.inputs)));
  }
  if (trained.label && schema.label != trained.label) {
    return absl::InvalidArgumentError(
        absl::StrCat("--label_column: the label is column '", schema.columns[*schema.label],
                     "', but in training it was '", schema.columns[*trained.label], "'"));
  }
  if (missing_value && schema.missing_value != missing_value) {
    return absl::InvalidArgumentError(absl::StrCat("--missing_value: an empty field stands for ",
                                                   *schema.missing_value, ", but in training for ",
                                                   *missing_value));
  }
  return absl::OkStatus();
}

bool HasTrained(const DataOptions& options) {
  return options.trained_columns && options.trained_columns->format == kCsvFormat;
}

}  // namespace

char DetectCsvSeparator(absl::string_view text) {
  char best = ',';
  std::optional<int64_t> fewest;
  for (const char separator : {',', ';', '\t'}) {
    const auto misfits = Misfits(text, separator);
    if (!misfits || (fewest && *misfits >= *fewest)) continue;
    best = separator;
    fewest = misfits;
  }
  return best;
}

absl::StatusOr<char> ParseCsvSeparator(absl::string_view text) {
  constexpr std::pair<const char*, char> kNames[] = {
      {"comma", ','}, {"semicolon", ';'}, {"tab", '\t'}, {"\\t", '\t'}, {"space", ' '}};
  for (const auto& [name, separator] : kNames) {
    if (text == name) return separator;
  }
  constexpr absl::string_view kNever = "\"'#+-.\r\n\0";
  if (text.size() != 1 || absl::ascii_isalnum(static_cast<unsigned char>(text[0])) ||
      !absl::ascii_isascii(static_cast<unsigned char>(text[0])) || absl::StrContains(kNever, text)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "'", text,
        "' cannot separate fields: use comma, semicolon, tab, space, or a single character such as |"));
  }
  return text[0];
}

bool IsMissing(absl::string_view field) {
  for (const char* word : {"", "NA", "N/A", "nan", "null"}) {
    if (absl::EqualsIgnoreCase(field, word)) return true;
  }
  return false;
}

std::vector<absl::string_view> NumbersOf(absl::string_view field) {
  std::vector<absl::string_view> numbers;
  if (absl::StripAsciiWhitespace(field).empty()) return numbers;
  for (const absl::string_view part : absl::StrSplit(field, '|')) {
    const std::vector<absl::string_view> of_part =
        absl::StrSplit(part, absl::ByAnyChar(" \t"), absl::SkipEmpty());
    if (of_part.empty()) numbers.emplace_back();
    numbers.insert(numbers.end(), of_part.begin(), of_part.end());
  }
  return numbers;
}

std::pair<absl::string_view, absl::string_view> IdAndWeight(absl::string_view number) {
  const size_t colon = number.rfind(':');
  if (colon == absl::string_view::npos) return {number, "1"};
  return {number.substr(0, colon), number.substr(colon + 1)};
}

CsvFields WithoutTypes(const CsvFields& fields) {
  constexpr absl::string_view kTypes[] = {"token", "token_seq", "float", "float_seq"};
  CsvFields names;
  for (const absl::string_view field : fields) {
    const size_t colon = field.rfind(':');
    if (colon == absl::string_view::npos || !absl::c_linear_search(kTypes, field.substr(colon + 1)))
      return fields;
    names.push_back(field.substr(0, colon));
  }
  return names;
}

bool IsCsvHeader(const CsvFields& fields, const DataOptions& options) {
  std::string label = options.label_column;
  if (label.empty() && HasTrained(options) && options.trained_columns->label) {
    label = options.trained_columns->names[*options.trained_columns->label];
  }
  const bool named = !label.empty() && !WholeNumber(label);
  for (const absl::string_view field : fields) {
    if (named ? field == label : IsLabelName(field)) return true;
  }
  const bool any_ragged = absl::c_linear_search(options.ragged_inputs, true);
  return std::none_of(fields.begin(), fields.end(), [&](absl::string_view field) {
    const auto is_number = [](absl::string_view number) { return IsNumber(number, ';'); };
    return is_number(field) || IsHexadecimal(field) || (!field.empty() && IsMissing(field)) ||
           (any_ragged && !field.empty() && absl::c_all_of(NumbersOf(field), [&](absl::string_view number) {
              const auto [id, weight] = IdAndWeight(number);
              return is_number(id) && is_number(weight);
            }));
  });
}

absl::StatusOr<CsvSchema> MakeCsvSchema(const CsvFields& first, bool has_header, char separator,
                                        const DataOptions& options, const std::vector<std::string>& joined) {
  CsvSchema schema = {
      .separator = separator, .has_header = has_header, .decimals = DecimalReader(separator != ',')};
  for (const absl::string_view field : first) {
    schema.columns.push_back(has_header ? std::string(field) : absl::StrCat(schema.columns.size()));
  }
  const std::vector<std::string> own = schema.columns;
  schema.columns.insert(schema.columns.end(), joined.begin(), joined.end());
  const auto& columns = schema.columns;
  std::optional<Selection> trained;
  if (HasTrained(options)) {
    CAIRN_ASSIGN_OR_RETURN(trained, FindTrained(columns, has_header, options));
  }
  if (!options.label_column.empty()) {
    CAIRN_ASSIGN_OR_RETURN(schema.label, FindColumn(columns, options.label_column));
  } else if (trained) {
    schema.label = trained->label;
  } else {
    CAIRN_ASSIGN_OR_RETURN(schema.label, FindLabel(own, options));
  }
  std::vector<std::string> features = options.feature_columns;
  if (features.empty() && !trained && options.input_names.size() > 1 &&
      std::find(columns.begin(), columns.end(), options.input_names.front()) != columns.end()) {
    for (size_t i = 0; i < options.input_names.size(); ++i) {
      const std::string& name = options.input_names[i];
      // Weights without a column of their own are in the column of their ids.
      if (options.IsRagged(i) && options.WeightsOf(i) >= 0 && !absl::c_linear_search(columns, name)) continue;
      features.push_back(name);
    }
  }
  for (const std::string& feature : features) {
    CAIRN_ASSIGN_OR_RETURN(schema.features.emplace_back(), FindColumn(columns, feature));
  }
  if (features.empty() && trained) {
    schema.features = trained->inputs;
  } else if (features.empty()) {
    for (size_t i = 0; i < columns.size(); ++i) {
      if (schema.label != i) schema.features.push_back(i);
    }
  }
  CAIRN_ASSIGN_OR_RETURN(schema.hash_ids, HashesIds(options, kCsvFormat));
  schema.missing_value = options.missing_value;
  if (trained) {
    schema.by_position = !has_header || !options.trained_columns->named;
    const std::optional<float>& missing_value = options.trained_columns->missing_value;
    if (!schema.missing_value) schema.missing_value = missing_value;
    CAIRN_RETURN_IF_ERROR(CheckAsTrained(schema, *trained, missing_value));
  }
  if (schema.features.empty()) {
    return absl::InvalidArgumentError(
        "has only one column, the label; fields must be separated by comma, semicolon or tab, or as "
        "--csv_separator says");
  }
  return schema;
}

}  // namespace cairn::data
