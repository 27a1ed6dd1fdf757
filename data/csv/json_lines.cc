#include "data/csv/json_lines.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/core/json.h"
#include "common/core/status.h"
#include "data/csv/csv_schema.h"

namespace cairn::data {
namespace {

using nlohmann::json;

// The text of a value that is neither a list nor an object; nullopt for those.
std::optional<std::string> TextOf(const json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_boolean()) return value.get<bool>() ? "1" : "0";
  if (value.is_number()) return value.dump();
  return value.is_null() ? std::optional<std::string>("") : std::nullopt;
}

// The field of CSV for `value`.
absl::StatusOr<std::string> FieldOf(const json& value) {
  if (const auto text = TextOf(value)) return *text;
  if (!value.is_array()) return absl::InvalidArgumentError("is an object");
  std::vector<std::string> texts;
  for (const json& entry : value) {
    const auto text = TextOf(entry);
    if (!text || text->empty() || text->find_first_of(" |") != std::string::npos) {
      return absl::InvalidArgumentError(absl::StrCat(
          "its list holds ", entry.dump(), ", but expected numbers, or strings without blanks and '|'"));
    }
    texts.push_back(*text);
  }
  return absl::StrJoin(texts, "|");
}

void AppendRecord(const std::vector<std::string>& fields, std::string& csv) {
  const char* separator = "";
  for (const std::string& field : fields) {
    absl::StrAppend(&csv, separator, "\"", absl::StrReplaceAll(field, {{"\"", "\"\""}}), "\"");
    separator = ",";
  }
  csv += '\n';
}

// The fields of `object` in the order of `names`.
absl::StatusOr<std::vector<std::string>> FieldsOf(const json& object, const std::vector<std::string>& names) {
  std::vector<std::string> fields(names.size());
  for (const auto& [name, value] : object.items()) {
    const auto at = std::lower_bound(names.begin(), names.end(), name);
    if (at == names.end() || *at != name) {
      return absl::InvalidArgumentError(absl::StrCat("the first object has no field '", name, "'"));
    }
    auto field = FieldOf(value);
    if (!field.ok()) return Annotate(field.status(), absl::StrCat("field '", name, "'"));
    fields[static_cast<size_t>(at - names.begin())] = *std::move(field);
  }
  return fields;
}

}  // namespace

absl::StatusOr<JsonLines> ReadJsonLines(absl::string_view text, const std::string& path) {
  JsonLines read;
  std::vector<std::string> names;
  int64_t number = 0;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    ++number;
    if (absl::StripAsciiWhitespace(line).empty()) continue;
    const std::string place = absl::StrCat(path, ": line ", number);
    CAIRN_ASSIGN_OR_RETURN(const json object, ParseJson(line, place));
    if (!object.is_object() || object.empty()) {
      return absl::InvalidArgumentError(absl::StrCat(place, ": is not an object with fields"));
    }
    if (names.empty()) {
      for (const auto& [name, value] : object.items()) {
        double number_in_name = 0;
        if (IsMissing(name) || absl::SimpleAtod(name, &number_in_name)) {
          return absl::InvalidArgumentError(
              absl::StrCat(place, ": '", name, "' cannot be the name of a field"));
        }
        names.push_back(name);
      }
      AppendRecord(names, read.csv);
      read.lines.push_back(1);
    }
    const auto fields = FieldsOf(object, names);
    if (!fields.ok()) return Annotate(fields.status(), place);
    AppendRecord(*fields, read.csv);
    read.lines.push_back(number);
  }
  return read;
}

}  // namespace cairn::data
