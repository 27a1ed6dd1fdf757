// Lines of Criteo's click logs (Kaggle's train.txt, the day_N files of the 1 TB set): 40 fields between tabs.
//
//   label (0 or 1)   I1 ... I13 (integers, may be negative)   C1 ... C26 (8 hexadecimal digits)
//
// Every field but the label may be empty, which means that its value is missing. Lines without labels have 39 fields.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace cairn::data {

inline constexpr int kCriteoNumbers = 13;     // I1 to I13
inline constexpr int kCriteoCategories = 26;  // C1 to C26

struct CriteoLine {
  struct Category {
    bool missing = true;
    uint32_t value = 0;            // the hexadecimal number
    std::array<char, 8> digits{};  // its digits, in lower case
  };

  float label = 0;                                       // 0 if the line has none
  std::array<int64_t, kCriteoNumbers> numbers{};         // 0 if missing
  std::array<Category, kCriteoCategories> categories{};  // [C1 to C26]
};

// Parses `line`, which has no line end. INVALID_ARGUMENT describes the fault: "has 39 fields, ...", "C2 holds ...".
absl::Status ParseCriteoLine(absl::string_view line, bool labelled, CriteoLine& parsed);

// The value of an integer field for the model: log(x + 1), where x is the field's number, or 0 if that is negative.
float CriteoNumber(int64_t number);

// The id of a category in a table of all 32-bit numbers: 0 if it is missing, else its value + 1.
inline int64_t CriteoId(const CriteoLine::Category& category) {
  return category.missing ? 0 : int64_t{category.value} + 1;
}

// The digits, or an empty text if the category is missing. Valid as long as `category`.
inline absl::string_view CriteoText(const CriteoLine::Category& category) {
  return {category.digits.data(), category.missing ? 0 : category.digits.size()};
}

// The name of a field of a labelled line: "label", "I1", "C26".
std::string CriteoFieldName(int field);

}  // namespace cairn::data
