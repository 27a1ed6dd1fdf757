#include "data/csv/decimal.h"

#include <cmath>
#include <limits>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/core/status.h"

namespace cairn::data {
namespace {

// Removes the leading decimal digits of `text` and returns them.
absl::string_view TakeDigits(absl::string_view& text) {
  size_t count = 0;
  while (count < text.size() && absl::ascii_isdigit(static_cast<unsigned char>(text[count]))) ++count;
  const absl::string_view digits = text.substr(0, count);
  text.remove_prefix(count);
  return digits;
}

// Removes "+" or "-", if present.
void TakeSign(absl::string_view& text) {
  if (absl::StartsWith(text, "+") || absl::StartsWith(text, "-")) text.remove_prefix(1);
}

}  // namespace

std::optional<Decimal> ParseDecimal(absl::string_view text, bool comma_allowed) {
  text = absl::StripAsciiWhitespace(text);
  absl::string_view rest = text;
  TakeSign(rest);
  Decimal decimal;
  const absl::string_view whole = TakeDigits(rest);
  absl::string_view fraction;
  if (!rest.empty() && (rest.front() == '.' || (comma_allowed && rest.front() == ','))) {
    decimal.mark = rest.front();
    rest.remove_prefix(1);
    fraction = TakeDigits(rest);
  }
  if (whole.empty() && fraction.empty()) return std::nullopt;
  decimal.maybe_thousands = decimal.mark == ',' && fraction.size() == 3 && whole.size() >= 1 &&
                            whole.size() <= 3 && whole.front() != '0' && rest.empty();
  if (absl::ConsumePrefix(&rest, "e") || absl::ConsumePrefix(&rest, "E")) {
    TakeSign(rest);
    if (TakeDigits(rest).empty()) return std::nullopt;
  }
  if (!rest.empty()) return std::nullopt;

  std::string point(text);
  if (decimal.mark == ',') point[point.find(',')] = '.';
  if (!absl::SimpleAtod(point, &decimal.value) ||
      std::fabs(decimal.value) > std::numeric_limits<float>::max()) {
    return std::nullopt;
  }
  return decimal;
}

absl::StatusOr<std::optional<double>> DecimalReader::Read(absl::string_view text) {
  const auto decimal = ParseDecimal(text, comma_allowed_);
  if (!decimal) return std::nullopt;
  if (decimal->mark != 0) {
    if (mark_ != 0 && mark_ != decimal->mark) {
      return absl::InvalidArgumentError(absl::StrCat("holds '", absl::StripAsciiWhitespace(text),
                                                     "'; earlier numbers have '",
                                                     absl::string_view(&mark_, 1), "' as the decimal mark"));
    }
    mark_ = decimal->mark;
    certain_ = certain_ || !decimal->maybe_thousands;
  }
  return decimal->value;
}

absl::StatusOr<std::optional<int64_t>> DecimalReader::ReadInteger(absl::string_view text) {
  if (int64_t integer = 0; absl::SimpleAtoi(text, &integer)) return integer;
  CAIRN_ASSIGN_OR_RETURN(const auto number, Read(text));
  // Below 2^53 a double is the only one near its whole number; 2^53 may be a rounded 2^53 + 1.
  if (!number || *number != std::floor(*number) || std::fabs(*number) >= 0x1p53) return std::nullopt;
  return static_cast<int64_t>(*number);
}

bool IsHexadecimal(absl::string_view text) {
  text = absl::StripAsciiWhitespace(text);
  TakeSign(text);
  return text.size() > 2 && absl::StartsWithIgnoreCase(text, "0x") &&
         text.find_first_not_of("0123456789abcdefABCDEF", 2) == absl::string_view::npos;
}

}  // namespace cairn::data
