#include "data/criteo/criteo_inputs.h"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "common/core/status.h"
#include "data/hashed_id.h"

namespace cairn::data {
namespace {

constexpr int kFirstCategory = 1 + kCriteoNumbers;
constexpr int kFields = kFirstCategory + kCriteoCategories;

std::optional<int> FieldNamed(absl::string_view name) {
  for (int field = 1; field < kFields; ++field) {
    if (CriteoFieldName(field) == name) return field;
  }
  return std::nullopt;
}

std::vector<int> Fields(int first, int count) {
  std::vector<int> fields(static_cast<size_t>(count));
  std::iota(fields.begin(), fields.end(), first);
  return fields;
}

absl::Status CheckOptions(const DataOptions& options) {
  if (!options.label_column.empty() && options.label_column != CriteoFieldName(0)) {
    return absl::InvalidArgumentError(absl::StrCat("--label_column: '", options.label_column,
                                                   "' is no label of Criteo's lines; theirs is 'label'"));
  }
  if (options.missing_value || options.csv_separator != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(options.missing_value ? "--missing_value" : "--csv_separator",
                     " applies to CSV; these files are Criteo's"));
  }
  return absl::OkStatus();
}

// The names that options give to the fields of all inputs. Empty: none.
absl::StatusOr<std::vector<std::string>> GivenNames(const DataOptions& options) {
  if (!options.trained_columns || options.trained_columns->format != kCriteoFormat)
    return options.feature_columns;
  const Columns& trained = *options.trained_columns;
  std::vector<std::string> names;
  for (const size_t input : trained.inputs) names.push_back(trained.names[input]);
  if (!options.feature_columns.empty() && options.feature_columns != names) {
    return absl::InvalidArgumentError(absl::StrCat("--feature_column: the inputs are fields ",
                                                   ListColumns(options.feature_columns),
                                                   ", but in training they were ", ListColumns(names)));
  }
  return names;
}

absl::StatusOr<std::vector<int>> GivenFields(const DataOptions& options) {
  CAIRN_ASSIGN_OR_RETURN(const std::vector<std::string> names, GivenNames(options));
  std::vector<int> fields;
  for (const std::string& name : names) {
    const std::optional<int> field = FieldNamed(name);
    if (!field) {
      return absl::InvalidArgumentError(
          absl::StrCat("--feature_column: '", name, "' is no field of Criteo's lines: I1 to I13, C1 to C26"));
    }
    fields.push_back(*field);
  }
  return fields;
}

// The type of an input, its number of values and its name.
struct Wanted {
  std::string name;
  int64_t values;
  bool integers;
  int64_t table_rows;
};

std::vector<Wanted> InputsOf(const DataOptions& options) {
  std::vector<Wanted> inputs;
  for (size_t i = 0; i < options.input_types.size(); ++i) {
    inputs.push_back({.name = options.input_names[i],
                      .values = options.input_shapes[i].num_elements(),
                      .integers = IsInteger(options.input_types[i]),
                      .table_rows = i < options.table_rows.size() ? options.table_rows[i] : 0});
  }
  return inputs;
}

std::vector<int> UsualFields(const Wanted& input) {
  if (const std::optional<int> field = FieldNamed(input.name)) return {*field};
  return input.integers ? Fields(kFirstCategory, kCriteoCategories) : Fields(1, kCriteoNumbers);
}

// INVALID_ARGUMENT if `input` does not take `fields`.
absl::Status CheckSuits(const Wanted& input, absl::Span<const int> fields) {
  const auto is_category = [](int field) { return field >= kFirstCategory; };
  if (static_cast<int64_t>(fields.size()) != input.values) {
    return absl::InvalidArgumentError(
        absl::StrCat("input '", input.name, "' of the model takes ", input.values, " values, but there are ",
                     fields.size(), fields.size() == 1 ? " field" : " fields", " for it (",
                     input.integers ? "integers: C1 to C26" : "floats: I1 to I13",
                     ", unless the input is named after a field or --feature_column names them)"));
  }
  for (const int field : fields) {
    if (is_category(field) == input.integers) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("input '", input.name, "' of the model takes ", input.integers ? "integers" : "floats",
                     ", but ", CriteoFieldName(field),
                     input.integers ? " is a number, which is read as a float"
                                    : " is a category, whose id an Embedding must look up"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<CriteoInput>> MakeCriteoInputs(const DataOptions& options) {
  CAIRN_RETURN_IF_ERROR(CheckOptions(options));
  CAIRN_ASSIGN_OR_RETURN(const std::vector<int> given, GivenFields(options));
  CAIRN_ASSIGN_OR_RETURN(const bool hash, HashesIds(options, kCriteoFormat));
  std::vector<CriteoInput> inputs;
  size_t taken = 0;
  for (const Wanted& wanted : InputsOf(options)) {
    CriteoInput& input = inputs.emplace_back();
    input.fields = UsualFields(wanted);
    if (!given.empty()) {
      const absl::Span<const int> rest = absl::MakeConstSpan(given).subspan(taken);
      const auto own = rest.subspan(0, static_cast<size_t>(wanted.values));
      input.fields.assign(own.begin(), own.end());
      taken += own.size();
    }
    CAIRN_RETURN_IF_ERROR(CheckSuits(wanted, input.fields));
    input.scale = ScaleOf(options.ScaleOf(inputs.size() - 1), /*bytes=*/false);
    input.categories = wanted.integers;
    if (!hash || !input.categories) continue;
    input.table_rows = wanted.table_rows;
    for (const int field : input.fields) input.salts.push_back(SaltOf(CriteoFieldName(field)));
  }
  if (taken < given.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--feature_column: names ", given.size(), " fields, but the model takes ", taken));
  }
  if (!inputs.empty()) return inputs;
  inputs.push_back({.fields = Fields(1, kCriteoNumbers)});
  inputs.push_back({.fields = Fields(kFirstCategory, kCriteoCategories), .categories = true});
  return inputs;
}

Columns CriteoColumns(const std::vector<CriteoInput>& inputs) {
  Columns columns{.format = kCriteoFormat, .label = 0};
  for (int field = 0; field < kFields; ++field) columns.names.push_back(CriteoFieldName(field));
  for (const CriteoInput& input : inputs) {
    columns.hashed_ids |= input.table_rows > 0;
    for (const int field : input.fields) columns.inputs.push_back(static_cast<size_t>(field));
  }
  return columns;
}

}  // namespace cairn::data
