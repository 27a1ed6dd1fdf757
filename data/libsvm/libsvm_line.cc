#include "data/libsvm/libsvm_line.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <system_error>

#include "absl/strings/ascii.h"
#include "absl/strings/charconv.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "data/csv/csv_labels.h"

namespace cairn::data {
namespace {

constexpr absl::string_view kBlanks = " \t";

// Removes the first field of `rest` and the blanks behind it.
absl::string_view TakeField(absl::string_view& rest) {
  const absl::string_view field = rest.substr(0, rest.find_first_of(kBlanks));
  rest.remove_prefix(field.size());
  rest.remove_prefix(std::min(rest.find_first_not_of(kBlanks), rest.size()));
  return field;
}

bool ParseIndex(absl::string_view text, int64_t& index) {
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, index);
  return error == std::errc() && stop == end && index >= 0 && text.front() != '-';
}

template <typename Float>
bool ParseNumber(absl::string_view text, Float& number) {
  absl::ConsumePrefix(&text, "+");
  const char* const end = text.data() + text.size();
  const auto [stop, error] = absl::from_chars(text.data(), end, number);
  // A value that is too small for the type is 0 or subnormal.
  return !text.empty() && stop == end && std::isfinite(number) &&
         (error == std::errc() || std::fabs(number) < 1);
}

absl::Status Wrong(absl::string_view field, absl::string_view part, absl::string_view wanted) {
  return absl::InvalidArgumentError(
      absl::StrCat(ShowField(field), ": ", ShowField(part), " is not ", wanted));
}

absl::Status ParseEntry(absl::string_view field, LibsvmLine& parsed) {
  constexpr absl::string_view kIndex = "a whole number from 0 on (int64)";
  LibsvmEntry& entry = parsed.entries.emplace_back();
  absl::string_view index = field.substr(0, field.find(':'));
  absl::string_view value = field.substr(std::min(index.size() + 1, field.size()));
  if (index.size() == field.size())
    return absl::InvalidArgumentError(absl::StrCat(ShowField(field), " is not index:value"));
  const size_t colon = value.find(':');
  const bool has_field = colon != absl::string_view::npos;
  if (parsed.entries.size() > 1 && has_field != parsed.has_fields) {
    return absl::InvalidArgumentError(
        absl::StrCat(ShowField(field), " is ", has_field ? "field:index:value" : "index:value",
                     ", but the line began with ", parsed.has_fields ? "field:index:value" : "index:value"));
  }
  parsed.has_fields = has_field;
  if (has_field) {
    if (!ParseIndex(index, entry.field)) return Wrong(field, index, kIndex);
    index = value.substr(0, colon);
    value.remove_prefix(colon + 1);
  }
  if (index.empty() || !ParseIndex(index, entry.index)) return Wrong(field, index, kIndex);
  if (!ParseNumber(value, entry.value)) return Wrong(field, value, "a number (float32)");
  return absl::OkStatus();
}

}  // namespace

absl::string_view WithoutComment(absl::string_view line) {
  return absl::StripAsciiWhitespace(line.substr(0, line.find('#')));
}

absl::Status ParseLibsvmLine(absl::string_view line, LibsvmLine& parsed) {
  parsed.entries.clear();
  parsed.has_fields = false;
  absl::string_view rest = line;
  const absl::string_view first = rest.substr(0, rest.find_first_of(kBlanks));
  parsed.has_label = first.find(':') == absl::string_view::npos;
  if (parsed.has_label) {
    if (!ParseNumber(TakeField(rest), parsed.label)) {
      return absl::InvalidArgumentError(
          absl::StrCat("the label is ", ShowField(first), ", which is not a number"));
    }
  }
  if (absl::StartsWith(rest, "qid:")) {
    int64_t query = 0;
    const absl::string_view field = TakeField(rest);
    if (!ParseIndex(field.substr(4), query)) return Wrong(field, field.substr(4), "a whole number from 0 on");
  }
  while (!rest.empty()) {
    if (absl::Status status = ParseEntry(TakeField(rest), parsed); !status.ok()) return status;
  }
  return absl::OkStatus();
}

}  // namespace cairn::data
