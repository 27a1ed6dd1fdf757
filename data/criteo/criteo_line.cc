#include "data/criteo/criteo_line.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "data/csv/csv_labels.h"

namespace cairn::data {
namespace {

constexpr int kLabelledFields = 1 + kCriteoNumbers + kCriteoCategories;

static_assert(std::endian::native == std::endian::little, "fields are compared as little-endian words");

absl::Status WrongField(int field, absl::string_view text, absl::string_view wanted) {
  return absl::InvalidArgumentError(absl::StrCat(field == 0 ? "the label" : CriteoFieldName(field), " holds ",
                                                 ShowField(text), ", which is not ", wanted));
}

absl::Status WrongCount(int64_t fields, bool labelled) {
  const int64_t wanted = labelled ? kLabelledFields : kLabelledFields - 1;
  return absl::InvalidArgumentError(absl::StrCat(
      "has ", fields, fields == 1 ? " field" : " fields", " between tabs, but a line of Criteo has ", wanted,
      ": ", labelled ? "label, " : "", "I1 to I13, C1 to C26",
      labelled && fields == wanted - 1 ? "; is its label missing?" : ""));
}

// Parses an optional '-' and digits.
bool ParseNumber(absl::string_view text, int64_t& number) {
  constexpr size_t kSafeDigits = 18;  // that every int64 holds
  absl::string_view digits = text;
  const bool negative = absl::ConsumePrefix(&digits, "-");
  int64_t value = 0;
  for (const char c : digits.substr(0, kSafeDigits)) {
    if (c < '0' || c > '9') return false;
    value = value * 10 + (c - '0');
  }
  number = negative ? -value : value;
  if (digits.size() <= kSafeDigits) return !digits.empty();
  return digits.find_first_not_of("0123456789") == absl::string_view::npos && absl::SimpleAtoi(text, &number);
}

// The value of eight hexadecimal digits, which are compared and converted at once; nullopt if one is no digit. The
// first is the lowest byte of `text`.
std::optional<uint32_t> HexValue(uint64_t text) {
  constexpr uint64_t kOnes = 0x0101010101010101;
  const uint64_t letters = text >> 6 & kOnes;  // 1 for a character of the columns of letters in ASCII
  const uint64_t low = text & kOnes * 0xF;
  // The upper half of a digit is 3, and that of a letter 4 or 6.
  bool valid = ((text | kOnes * 0x20) & kOnes * 0xF0) == kOnes * 0x30 + letters * 0x30;
  valid &= (~text & (kOnes - letters) * 0x20) == 0;
  // The lower half of a digit is at most 9, and that of a letter from 1 to 6.
  valid &= ((low + kOnes * 6 + letters * 3) & kOnes * 0x10) == 0;
  valid &= ((low + kOnes * 0xF) >> 4 & letters) == letters;
  if (!valid) return std::nullopt;
  uint64_t value = __builtin_bswap64(low + letters * 9);
  value = (value | value >> 4) & 0x00FF00FF00FF00FF;
  value = (value | value >> 8) & 0x0000FFFF0000FFFF;
  return static_cast<uint32_t>(value | value >> 16);
}

bool ParseCategory(absl::string_view text, CriteoLine::Category& category) {
  if (text.size() != category.digits.size()) return false;
  uint64_t word;
  std::memcpy(&word, text.data(), sizeof(word));
  const std::optional<uint32_t> value = HexValue(word);
  if (!value.has_value()) return false;
  word |= 0x2020202020202020;  // letters in lower case
  std::memcpy(category.digits.data(), &word, sizeof(word));
  category.missing = false;
  category.value = *value;
  return true;
}

// The length of the first field of `text`; npos if no tab follows it. A field has up to 8 characters as a rule, which
// are compared at once.
size_t FieldEnd(absl::string_view text) {
  constexpr size_t kWord = sizeof(uint64_t);
  constexpr uint64_t kOnes = 0x0101010101010101, kTops = kOnes << 7;
  if (text.size() > kWord) {
    uint64_t word;
    std::memcpy(&word, text.data(), kWord);
    const uint64_t different = word ^ (kOnes * '\t');  // 0 where there is a tab
    // The lowest top bit that is set belongs to the first byte of 0; those above it may be wrong.
    if (const uint64_t tabs = (different - kOnes) & ~different & kTops; tabs != 0) {
      return static_cast<size_t>(std::countr_zero(tabs)) / 8;
    }
    if (text[kWord] == '\t') return kWord;
  }
  return text.find('\t');
}

absl::Status ParseField(int field, absl::string_view text, CriteoLine& parsed) {
  if (field == 0) {
    if (text != "0" && text != "1") return WrongField(field, text, "0 or 1");
    parsed.label = text == "1" ? 1.0f : 0.0f;
  } else if (field <= kCriteoNumbers) {
    int64_t& number = parsed.numbers[static_cast<size_t>(field - 1)];
    number = 0;
    if (!text.empty() && !ParseNumber(text, number)) return WrongField(field, text, "a whole number (int64)");
  } else {
    auto& category = parsed.categories[static_cast<size_t>(field - 1 - kCriteoNumbers)];
    category.missing = true;
    if (!text.empty() && !ParseCategory(text, category))
      return WrongField(field, text, "8 hexadecimal digits");
  }
  return absl::OkStatus();
}

constexpr size_t kTabulated = 1024;
std::array<float, kTabulated> MakeLogarithms() {
  std::array<float, kTabulated> logarithms;
  for (size_t i = 0; i < kTabulated; ++i) {
    logarithms[i] = static_cast<float>(std::log1p(static_cast<double>(i)));
  }
  return logarithms;
}

}  // namespace

absl::Status ParseCriteoLine(absl::string_view line, bool labelled, CriteoLine& parsed) {
  int field = labelled ? 0 : 1;
  absl::string_view rest = line;
  for (;; ++field) {
    const size_t end = FieldEnd(rest);
    if (field == kLabelledFields || (end == absl::string_view::npos) != (field == kLabelledFields - 1)) {
      return WrongCount(std::count(line.begin(), line.end(), '\t') + 1, labelled);
    }
    absl::Status status = ParseField(field, rest.substr(0, end), parsed);
    if (!status.ok()) {
      const int64_t fields = std::count(line.begin(), line.end(), '\t') + 1;
      return fields == kLabelledFields - (labelled ? 0 : 1) ? status : WrongCount(fields, labelled);
    }
    if (end == absl::string_view::npos) return absl::OkStatus();
    rest.remove_prefix(end + 1);
  }
}

float CriteoNumber(int64_t number) {
  static const std::array<float, kTabulated> logarithms = MakeLogarithms();
  if (number <= 0) return 0;
  if (number < static_cast<int64_t>(kTabulated)) return logarithms[static_cast<size_t>(number)];
  return static_cast<float>(std::log1p(static_cast<double>(number)));
}

std::string CriteoFieldName(int field) {
  if (field == 0) return "label";
  return field <= kCriteoNumbers ? absl::StrCat("I", field) : absl::StrCat("C", field - kCriteoNumbers);
}

}  // namespace cairn::data
