#include "data/libsvm/libsvm_inputs.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/core/status.h"
#include "data/file_sets.h"
#include "data/hashed_id.h"

namespace cairn::data {
namespace {

using Takes = LibsvmInput::Takes;

// 3 for "field_3" and "field_3_weights".
std::optional<int64_t> FieldIn(absl::string_view name) {
  if (!absl::ConsumePrefix(&name, "field_")) return std::nullopt;
  return WholeNumber(name.substr(0, name.find('_')));
}

absl::Status CheckOptions(const DataOptions& options) {
  const char* given = !options.label_column.empty()      ? "--label_column"
                      : !options.feature_columns.empty() ? "--feature_column"
                      : options.missing_value            ? "--missing_value"
                      : options.csv_separator != 0       ? "--csv_separator"
                                                         : nullptr;
  if (given != nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat(given, " applies to files with columns; libsvm and libffm files have none"));
  }
  if (!options.input_types.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "libsvm and libffm files are read for a model, whose inputs are not known");
}

Takes WhatTakes(const DataOptions& options, size_t input) {
  const auto is_integer = [](DType type) { return IsInteger(type); };
  if (is_integer(options.input_types[input]))
    return options.input_names[input] == "fields" ? Takes::kFields : Takes::kIndices;
  const bool any_ids = std::any_of(options.input_types.begin(), options.input_types.end(), is_integer);
  return any_ids || options.IsRagged(input) ? Takes::kValues : Takes::kVector;
}

}  // namespace

int64_t LibsvmInput::CountIn(const LibsvmLine& line) const {
  if (!field.has_value()) return static_cast<int64_t>(line.entries.size());
  return std::count_if(line.entries.begin(), line.entries.end(),
                       [this](const LibsvmEntry& entry) { return entry.field == *field; });
}

int64_t LibsvmInput::IdOf(const LibsvmEntry& entry, bool has_fields) const {
  if (table_rows == 0) return entry.index;
  const uint64_t salt = SaltOf(has_fields ? absl::StrCat(entry.field) : "");
  return HashedId(absl::StrCat(entry.index), salt, table_rows);
}

absl::StatusOr<std::vector<LibsvmInput>> MakeLibsvmInputs(const DataOptions& options) {
  CAIRN_RETURN_IF_ERROR(CheckOptions(options));
  CAIRN_ASSIGN_OR_RETURN(const bool hash, HashesIds(options, kLibsvmFormat));
  std::vector<LibsvmInput> inputs;
  for (size_t i = 0; i < options.input_types.size(); ++i) {
    const Takes takes = WhatTakes(options, i);
    const bool ragged = options.IsRagged(i);
    inputs.push_back({.name = options.input_names[i],
                      .takes = takes,
                      .field = FieldIn(options.input_names[i]),
                      .ragged = ragged,
                      .values = ragged ? 1 : options.input_shapes[i].num_elements(),
                      .table_rows = hash && takes == Takes::kIndices ? options.table_rows[i] : 0,
                      .scale = ScaleOf(options.ScaleOf(i), /*bytes=*/false)});
  }
  return inputs;
}

absl::Status CheckFits(const LibsvmLine& line, const LibsvmInput& input) {
  if (!line.has_fields && !line.entries.empty() &&
      (input.field.has_value() || input.takes == LibsvmInput::Takes::kFields)) {
    return absl::InvalidArgumentError(
        absl::StrCat("is index:value, but input '", input.name,
                     "' of the model takes fields: field:index:value (libffm)"));
  }
  if (input.ragged) return absl::OkStatus();
  if (input.takes != LibsvmInput::Takes::kVector) {
    const int64_t count = input.CountIn(line);
    if (count <= input.values) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat("has ", count, " entries, but input '", input.name,
                                                   "' of the model takes at most ", input.values));
  }
  for (const LibsvmEntry& entry : line.entries) {
    if (entry.index >= 1 && entry.index <= input.values) continue;
    return absl::InvalidArgumentError(absl::StrCat("has the index ", entry.index, ", but input '", input.name,
                                                   "' of the model takes 1 to ", input.values));
  }
  return absl::OkStatus();
}

}  // namespace cairn::data
