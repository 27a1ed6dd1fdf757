// Strict parsing of numbers in text files: only plain decimal numbers are accepted.
#pragma once

#include <cstdint>
#include <optional>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace cairn::data {

struct Decimal {
  double value = 0;
  char mark = 0;  // the decimal mark: '.' or ','; 0 if the number has none
  // "1,500" or "12,345,678" without a fraction after the last group: the comma could separate thousands.
  bool maybe_thousands = false;
};

// Parses [+-] digits, a decimal mark and more digits, an exponent; ignores surrounding blanks. A comma is a
// decimal mark only with `comma_allowed`. nullopt for everything else, including hexadecimal numbers, "inf",
// "nan", "1_000", digits in groups, and numbers that float32 cannot represent.
std::optional<Decimal> ParseDecimal(absl::string_view text, bool comma_allowed);

// Reads the numbers of one set of files, which must use one decimal mark. One thread.
class DecimalReader {
 public:
  explicit DecimalReader(bool comma_allowed) : comma_allowed_(comma_allowed) {}

  // A whole number of any size that int64 holds, exactly; nullopt for any other text. "1e3" and "7.0" are whole.
  absl::StatusOr<std::optional<int64_t>> ReadInteger(absl::string_view text);
  // Like ParseDecimal(). INVALID_ARGUMENT if the decimal mark differs from that of an earlier number.
  absl::StatusOr<std::optional<double>> Read(absl::string_view text);

  bool comma_allowed() const { return comma_allowed_; }
  char mark() const { return mark_; }  // 0 before the first number that has one
  // Whether commas have been read, and each of them could also be a thousands separator.
  bool ambiguous() const { return mark_ == ',' && !certain_; }

 private:
  bool comma_allowed_;
  char mark_ = 0;
  bool certain_ = false;
};

// "0x1F": a hexadecimal number, which no format here accepts.
bool IsHexadecimal(absl::string_view text);

}  // namespace cairn::data
