#include "nn/layer/config_reader.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "nn/layer/regularizer.h"

namespace cairn::nn {
namespace {

using nlohmann::json;

// Adds the numbers of nested lists in their order. False if there is anything else.
bool AddNumbers(const json& value, std::vector<double>& numbers) {
  if (value.is_number()) {
    numbers.push_back(value.get<double>());
    return true;
  }
  return value.is_array() && std::all_of(value.begin(), value.end(),
                                         [&](const json& entry) { return AddNumbers(entry, numbers); });
}

// The largest integer that is accepted. It is far beyond any real extent, and the product of two still fits
// into 64 bits.
constexpr int64_t kLargestInt = int64_t{1} << 31;

const json& Null() {
  static const json* const null = new json(nullptr);
  return *null;
}

bool IsPositiveInt(const json& value) {
  return value.is_number_integer() && value > 0 && value <= kLargestInt;
}

}  // namespace

ConfigReader::ConfigReader(const json& config) : config_(config.is_null() ? Null() : config) {
  if (!config.is_object() && !config.is_null()) {
    status_ = absl::InvalidArgumentError(absl::StrCat("expected an object, got ", config.dump()));
  }
}

bool ConfigReader::Has(absl::string_view field) const {
  return config_.is_object() && config_.contains(std::string(field));
}

const json& ConfigReader::Raw(absl::string_view field) {
  const std::string key(field);
  asked_.insert(key);
  if (!config_.is_object()) return Null();
  const auto found = config_.find(key);
  return found == config_.end() ? Null() : *found;
}

void ConfigReader::Fail(absl::string_view field, absl::string_view fault) {
  if (status_.ok()) status_ = absl::InvalidArgumentError(absl::StrCat(field, ": ", fault));
}

int64_t ConfigReader::PositiveInt(absl::string_view field, std::optional<int64_t> absent) {
  const json& value = Raw(field);
  if (value.is_null() && absent.has_value()) return *absent;
  if (IsPositiveInt(value)) return value.get<int64_t>();
  Fail(field, value.is_null() ? "required, a positive integer"
                              : absl::StrCat("expected a positive integer, got ", value.dump()));
  return absent.value_or(1);
}

std::array<int64_t, 2> ConfigReader::PositivePair(absl::string_view field,
                                                  std::optional<std::array<int64_t, 2>> absent) {
  const json& value = Raw(field);
  if (value.is_null() && absent.has_value()) return *absent;
  if (IsPositiveInt(value)) return {value.get<int64_t>(), value.get<int64_t>()};
  if (value.is_array() && value.size() == 2 && IsPositiveInt(value[0]) && IsPositiveInt(value[1])) {
    return {value[0].get<int64_t>(), value[1].get<int64_t>()};
  }
  Fail(field, value.is_null()
                  ? "required, a positive integer or two of them"
                  : absl::StrCat("expected a positive integer or two of them, got ", value.dump()));
  return absent.value_or(std::array<int64_t, 2>{1, 1});
}

std::vector<int64_t> ConfigReader::PositiveInts(absl::string_view field, size_t count,
                                                std::optional<std::vector<int64_t>> absent) {
  const json& value = Raw(field);
  if (value.is_null() && absent.has_value()) return *absent;
  if (IsPositiveInt(value)) return std::vector<int64_t>(count, value.get<int64_t>());
  std::vector<int64_t> ints;
  for (const json& entry : value.is_array() ? value : json::array()) {
    if (IsPositiveInt(entry)) ints.push_back(entry.get<int64_t>());
  }
  if (ints.size() == count && value.size() == count) return ints;
  const std::string wanted =
      count == 1 ? "a positive integer" : absl::StrCat("a positive integer or ", count, " of them");
  Fail(field, value.is_null() ? absl::StrCat("required, ", wanted)
                              : absl::StrCat("expected ", wanted, ", got ", value.dump()));
  return absent.value_or(std::vector<int64_t>(count, 1));
}

int64_t ConfigReader::PositiveSingle(absl::string_view field, std::optional<int64_t> absent) {
  const json& value = Raw(field);
  if (value.is_array() && value.size() == 1 && IsPositiveInt(value[0])) return value[0].get<int64_t>();
  return PositiveInt(field, absent);
}

std::vector<int64_t> ConfigReader::Ints(absl::string_view field, std::optional<std::vector<int64_t>> absent) {
  const json& value = Raw(field);
  if (value.is_null() && absent.has_value()) return *absent;
  std::vector<int64_t> ints;
  bool valid = value.is_array() || value.is_number();
  for (const json& entry : value.is_array() ? value : json::array({value})) {
    valid = valid && entry.is_number_integer() && entry >= -kLargestInt && entry <= kLargestInt;
    if (valid) ints.push_back(entry.get<int64_t>());
  }
  if (valid) return ints;
  Fail(field, value.is_null() ? "required, a list of integers"
                              : absl::StrCat("expected integers, got ", value.dump()));
  return absent.value_or(std::vector<int64_t>());
}

double ConfigReader::Number(absl::string_view field, std::optional<double> absent) {
  const json& value = Raw(field);
  if (value.is_null() && absent.has_value()) return *absent;
  if (value.is_number()) return value.get<double>();
  Fail(field, value.is_null() ? "required, a number" : absl::StrCat("expected a number, got ", value.dump()));
  return absent.value_or(0);
}

std::vector<double> ConfigReader::Numbers(absl::string_view field,
                                          std::optional<std::vector<double>> absent) {
  const json& value = Raw(field);
  if (value.is_null() && absent.has_value()) return *absent;
  std::vector<double> numbers;
  if (AddNumbers(value, numbers) && !numbers.empty()) return numbers;
  Fail(field, value.is_null() ? "required, a number or a list of numbers"
                              : absl::StrCat("expected numbers, got ", value.dump()));
  return absent.value_or(std::vector<double>{0});
}

bool ConfigReader::Bool(absl::string_view field, bool absent) {
  const json& value = Raw(field);
  if (value.is_null()) return absent;
  if (value.is_boolean()) return value.get<bool>();
  Fail(field, absl::StrCat("expected true or false, got ", value.dump()));
  return absent;
}

std::string ConfigReader::String(absl::string_view field, absl::string_view absent) {
  const json& value = Raw(field);
  if (value.is_null()) return std::string(absent);
  if (value.is_string()) return value.get<std::string>();
  Fail(field, absl::StrCat("expected a string, got ", value.dump()));
  return std::string(absent);
}

std::string ConfigReader::Choice(absl::string_view field, std::initializer_list<absl::string_view> allowed,
                                 absl::string_view absent) {
  const std::string value = absl::AsciiStrToLower(String(field, absent));
  for (absl::string_view candidate : allowed) {
    if (value == candidate) return value;
  }
  Fail(field, absl::StrCat("expected one of ", absl::StrJoin(allowed, ", "), ", got \"", value, "\""));
  return std::string(absent);
}

InitializerSpec ConfigReader::Initializer(absl::string_view field, absl::string_view absent) {
  const json& value = Raw(field);
  const auto parsed = ParseInitializer(value.is_null() ? json(std::string(absent)) : value);
  if (parsed.ok()) return *parsed;
  Fail(field, parsed.status().message());
  return {};
}

RegularizerSpec ConfigReader::Regularizer(absl::string_view field) {
  const json& value = Raw(field);
  if (value.is_null()) return {};
  const auto parsed = ParseRegularizer(value);
  if (parsed.ok()) return *parsed;
  Fail(field, parsed.status().message());
  return {};
}

std::optional<Constraint> ConfigReader::ReadConstraint(absl::string_view field) {
  const json& value = Raw(field);
  if (value.is_null()) return std::nullopt;
  const auto parsed = ParseConstraint(value);
  if (parsed.ok()) return *parsed;
  Fail(field, parsed.status().message());
  return std::nullopt;
}

void ConfigReader::Refuse(absl::string_view field, const json& harmless) {
  const json& value = Raw(field);
  if (value.is_null() || value == harmless) return;
  Fail(field, absl::StrCat(value.dump(), " is not supported", harmless.is_null() ? "" : ", only ",
                           harmless.is_null() ? "" : harmless.dump()));
}

void ConfigReader::RefuseUnlessNull(std::initializer_list<absl::string_view> fields) {
  for (absl::string_view field : fields) Refuse(field, Null());
}

void ConfigReader::Ignore(std::initializer_list<absl::string_view> fields) {
  for (absl::string_view field : fields) asked_.emplace(field);
}

absl::Status ConfigReader::status() const {
  return status_;
}

absl::Status ConfigReader::Finish() const {
  if (!status_.ok() || !config_.is_object()) return status_;
  for (const auto& [key, value] : config_.items()) {
    if (asked_.count(key) > 0 || value.is_null()) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(key, ": unknown field; known here: ", absl::StrJoin(asked_, ", ")));
  }
  return absl::OkStatus();
}

}  // namespace cairn::nn
