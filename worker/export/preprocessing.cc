#include "worker/export/preprocessing.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/core/json.h"
#include "common/core/status.h"
#include "data/row_source.h"

namespace cairn::worker {
namespace {

using Json = nlohmann::ordered_json;

constexpr char kBytes[] = "uint8", kNumbers[] = "number";

const char* TypeOf(const Preprocessing::Input& input) {
  return input.bytes ? kBytes : kNumbers;
}

const char* ValuesOf(const Preprocessing::Input& input) {
  return input.bytes ? "uint8 values" : "numbers";
}

bool OfOneFormat(const Preprocessing& trained, const Preprocessing& now) {
  return trained.columns && now.columns && trained.columns->format == now.columns->format;
}

std::vector<std::string> InputNames(const data::Columns& columns) {
  std::vector<std::string> names;
  for (const size_t column : columns.inputs) names.push_back(columns.names[column]);
  return names;
}

// JSON must be UTF-8, but the name of a column may be any bytes. UTF-8 names stay readable, and other names
// are escaped byte by byte; absl::CUnescape() reads both forms.
Json EscapedName(const std::string& name) {
  const Json readable = absl::Utf8SafeCEscape(name);
  try {
    static_cast<void>(readable.dump());
    return readable;
  } catch (const Json::exception&) {
    return absl::CEscape(name);
  }
}

template <typename T>
Json ToJson(const std::optional<T>& value) {
  return value.has_value() ? Json(*value) : Json();
}

Json ToJson(const data::Columns& columns) {
  Json names = Json::array();
  for (const std::string& name : columns.names) names.push_back(EscapedName(name));
  return {{"format", columns.format},        {"named", columns.named},
          {"names", std::move(names)},       {"inputs", columns.inputs},
          {"label", ToJson(columns.label)},  {"missing_value", ToJson(columns.missing_value)},
          {"hashed_ids", columns.hashed_ids}};
}

// These readers throw nlohmann::json::exception for a field that is missing or of another type.
template <typename T>
std::optional<T> ReadOptional(const nlohmann::json& json) {
  if (json.is_null()) return std::nullopt;
  return json.get<T>();
}

// Unlike get<size_t>(), this refuses negative numbers and fractions.
size_t ReadIndex(const nlohmann::json& json) {
  return json.get_ref<const nlohmann::json::number_unsigned_t&>();
}

data::Columns ReadColumns(const nlohmann::json& json) {
  data::Columns columns{.format = json.at("format").get<std::string>(),
                        .named = json.at("named").get<bool>(),
                        .missing_value = ReadOptional<float>(json.at("missing_value")),
                        .hashed_ids = json.value("hashed_ids", false)};
  for (const nlohmann::json& input : json.at("inputs")) columns.inputs.push_back(ReadIndex(input));
  if (const nlohmann::json& label = json.at("label"); !label.is_null()) columns.label = ReadIndex(label);
  for (const nlohmann::json& name : json.at("names")) {
    const std::string text = name.get<std::string>();
    // Training writes only strings that can be unescaped; others are kept unchanged.
    if (!absl::CUnescape(text, &columns.names.emplace_back())) columns.names.back() = text;
  }
  return columns;
}

Preprocessing ReadAll(const nlohmann::json& json) {
  Preprocessing preprocessing;
  for (const nlohmann::json& input : json.at("inputs")) {
    preprocessing.inputs.push_back({.name = input.at("name").get<std::string>(),
                                    .bytes = input.at("type").get<std::string>() == kBytes,
                                    .scale = input.at("scale").get<float>()});
  }
  preprocessing.input_scale = ReadOptional<float>(json.at("input_scale"));
  if (const nlohmann::json& columns = json.at("columns"); !columns.is_null()) {
    preprocessing.columns = ReadColumns(columns);
  }
  preprocessing.label_threshold = ReadOptional<float>(json.value("label_threshold", nlohmann::json()));
  return preprocessing;
}

// Finds faults that would break later lookups.
std::string FaultOf(const data::Columns& columns) {
  if (columns.inputs.empty()) return "columns.inputs is empty";
  for (const size_t column : columns.inputs) {
    if (column >= columns.names.size()) {
      return absl::StrCat("columns.inputs has ", column, ", but there are ", columns.names.size(), " names");
    }
  }
  if (columns.label && *columns.label >= columns.names.size()) {
    return absl::StrCat("columns.label is ", *columns.label, ", but there are ", columns.names.size(),
                        " names");
  }
  return "";
}

}  // namespace

Preprocessing PreprocessingOf(const data::DataOptions& options, const std::vector<bool>& byte_inputs,
                              const std::optional<data::Columns>& columns) {
  Preprocessing preprocessing{.columns = columns, .label_threshold = options.label_threshold};
  if (!std::isnan(options.input_scale)) preprocessing.input_scale = options.input_scale;
  for (size_t i = 0; i < options.input_names.size(); ++i) {
    const bool bytes = i < byte_inputs.size() && byte_inputs[i];
    const data::Scale scale = data::ScaleOf(options.ScaleOf(i), bytes);
    preprocessing.inputs.push_back({options.input_names[i], bytes, scale(1)});
  }
  return preprocessing;
}

std::string ToText(const Preprocessing& preprocessing) {
  Json inputs = Json::array();
  for (const Preprocessing::Input& input : preprocessing.inputs) {
    inputs.push_back({{"name", input.name}, {"type", TypeOf(input)}, {"scale", input.scale}});
  }
  const Json json = {{"inputs", std::move(inputs)},
                     {"input_scale", ToJson(preprocessing.input_scale)},
                     {"columns", preprocessing.columns.has_value() ? ToJson(*preprocessing.columns) : Json()},
                     {"label_threshold", ToJson(preprocessing.label_threshold)}};
  return absl::StrCat(json.dump(1), "\n");
}

absl::StatusOr<Preprocessing> ParsePreprocessing(absl::string_view text, absl::string_view source) {
  CAIRN_ASSIGN_OR_RETURN(const nlohmann::json json, ParseJson(text, source));
  Preprocessing preprocessing;
  std::string fault;
  try {
    preprocessing = ReadAll(json);
    if (preprocessing.columns) fault = FaultOf(*preprocessing.columns);
  } catch (const nlohmann::json::exception& error) {
    fault = error.what();
  }
  if (fault.empty()) return preprocessing;
  return absl::InvalidArgumentError(absl::StrCat(source, ": is not a file that training writes: ", fault));
}

void UseWhereOpen(const Preprocessing& trained, data::DataOptions& options) {
  if (std::isnan(options.input_scale) && trained.input_scale) options.input_scale = *trained.input_scale;
  if (!options.label_threshold) options.label_threshold = trained.label_threshold;
  options.trained_columns = trained.columns;
}

absl::Status CheckSame(const Preprocessing& trained, const Preprocessing& now) {
  for (size_t i = 0; i < std::min(trained.inputs.size(), now.inputs.size()); ++i) {
    const Preprocessing::Input &before = trained.inputs[i], &input = now.inputs[i];
    if (input.bytes != before.bytes || input.scale == before.scale) continue;
    return absl::InvalidArgumentError(absl::StrCat("--input_scale: the ", ValuesOf(input), " of input '",
                                                   input.name, "' are multiplied by ", input.scale,
                                                   ", in training by ", before.scale));
  }
  if (trained.label_threshold != now.label_threshold) {
    const auto text = [](const std::optional<float>& threshold) {
      return threshold ? absl::StrCat(*threshold) : "none";
    };
    return absl::InvalidArgumentError(absl::StrCat("--label_threshold is ", text(now.label_threshold),
                                                   ", in training it was ", text(trained.label_threshold)));
  }
  if (OfOneFormat(trained, now) && trained.columns->hashed_ids != now.columns->hashed_ids) {
    return absl::InvalidArgumentError(
        absl::StrCat("--hash_ids: ids are ", now.columns->hashed_ids ? "" : "not ",
                     "hashed, but in training they were ", trained.columns->hashed_ids ? "" : "not"));
  }
  if (!OfOneFormat(trained, now) || !trained.columns->named || !now.columns->named) return absl::OkStatus();
  const std::vector<std::string> before = InputNames(*trained.columns), names = InputNames(*now.columns);
  if (names == before) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("--feature_column: the inputs are columns ",
                                                 data::ListColumns(names), ", but in training they were ",
                                                 data::ListColumns(before)));
}

std::string DescribeUse(const Preprocessing& trained, const Preprocessing& now) {
  std::vector<std::string> parts;
  if (OfOneFormat(trained, now)) {
    const data::Columns& columns = *trained.columns;
    parts.push_back(absl::StrCat("columns ", data::ListColumns(InputNames(columns))));
    if (columns.label) parts.push_back(absl::StrCat("label ", columns.names[*columns.label]));
    if (columns.missing_value) parts.push_back(absl::StrCat("--missing_value ", *columns.missing_value));
  }
  if (trained.input_scale && now.input_scale == trained.input_scale) {
    parts.push_back(absl::StrCat("--input_scale ", *trained.input_scale));
  }
  if (trained.label_threshold) {
    parts.push_back(absl::StrCat("--label_threshold ", *trained.label_threshold));
  }
  for (size_t i = 0; i < std::min(trained.inputs.size(), now.inputs.size()); ++i) {
    const Preprocessing::Input &before = trained.inputs[i], &input = now.inputs[i];
    if (input.bytes == before.bytes) continue;
    parts.push_back(absl::StrCat("input '", input.name, "' has ", ValuesOf(input), ", multiplied by ",
                                 input.scale, " (in training ", ValuesOf(before), ", by ", before.scale,
                                 ")"));
  }
  return absl::StrJoin(parts, "; ");
}

}  // namespace cairn::worker
