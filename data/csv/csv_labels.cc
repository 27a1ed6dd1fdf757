#include "data/csv/csv_labels.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "data/class_names.h"
#include "data/csv/decimal.h"

namespace cairn::data {
namespace {

template <typename... Text>
absl::Status Refuse(absl::string_view label, const Text&... text) {
  return absl::InvalidArgumentError(absl::StrCat("is ", ShowField(label), text...));
}

std::optional<int64_t> ToClassIndex(double number) {
  if (number < 0 || number > static_cast<double>(kLargestLabel) || number != std::floor(number)) {
    return std::nullopt;
  }
  return static_cast<int64_t>(number);
}

}  // namespace

std::string ShowField(absl::string_view field) {
  constexpr size_t kMaxShown = 40;
  return absl::StrCat("'", absl::CHexEscape(field.substr(0, kMaxShown)),
                      field.size() > kMaxShown ? "..." : "", "'");
}

CsvLabels::CsvLabels(const std::vector<std::string>& class_names) : learning_(false), kind_(Kind::kWords) {
  for (const std::string& name : class_names) words_.emplace(name, static_cast<int64_t>(words_.size()));
}

CsvLabels CsvLabels::ForValidation(bool any_number) const {
  CsvLabels labels;
  labels.learning_ = false;
  labels.kind_ = any_number && kind_ == Kind::kClassIndices ? Kind::kNumbers : kind_;
  labels.words_ = words_;
  return labels;
}

absl::Status CsvLabels::Add(absl::string_view text, std::optional<double> number) {
  if (!number && IsHexadecimal(text)) return Refuse(text, ", a hexadecimal number, which is not supported");
  if (kind_ == Kind::kUnknown) kind_ = number ? Kind::kClassIndices : Kind::kWords;
  if (kind_ == Kind::kWords) return AddWord(text, number.has_value());
  if (!number)
    return Refuse(text, ", which is not a ", kind_ == Kind::kClassIndices ? "class index" : "number");
  return AddNumber(text, *number);
}

absl::Status CsvLabels::AddNumber(absl::string_view text, double number) {
  const auto index = ToClassIndex(number);
  if (!index && kind_ == Kind::kClassIndices) {
    if (!learning_) return Refuse(text, ", which is not a class index");
    kind_ = Kind::kNumbers;
  }
  if (index) largest_ = std::max(largest_, *index);
  labels_.push_back(index ? static_cast<float>(*index) : static_cast<float>(number));
  return absl::OkStatus();
}

absl::Status CsvLabels::AddWord(absl::string_view word, bool is_number) {
  auto found = words_.find(std::string(word));
  if (found == words_.end()) {
    if (is_number) return Refuse(word, ", a number, but other labels are words");
    if (!learning_) return Refuse(word, ", which is not one of the training set's classes");
    found = words_.emplace(word, static_cast<int64_t>(words_.size())).first;
  }
  largest_ = std::max(largest_, found->second);
  labels_.push_back(static_cast<float>(found->second));
  return absl::OkStatus();
}

void CsvLabels::NumberWords() {
  std::vector<float> sorted(words_.size());  // index in sorted order, by index in the order of appearance
  int64_t next = 0;
  for (auto& [word, number] : words_) {
    sorted[static_cast<size_t>(number)] = static_cast<float>(next);
    number = next++;
  }
  for (float& label : labels_) label = sorted[static_cast<size_t>(label)];
}

Targets CsvLabels::Finish() {
  if (learning_ && kind_ == Kind::kWords) NumberWords();
  if (kind_ == Kind::kWords) largest_ = static_cast<int64_t>(words_.size()) - 1;
  learning_ = false;
  return {.values = std::exchange(labels_, {}), .num_classes = kind_ == Kind::kNumbers ? 0 : largest_ + 1};
}

std::string CsvLabels::Describe() const {
  if (kind_ != Kind::kWords) return kind_ == Kind::kNumbers ? "numbers" : "class indices";
  return DescribeClasses(class_names());
}

std::vector<std::string> CsvLabels::class_names() const {
  std::vector<std::string> names(words_.size());
  for (const auto& [word, number] : words_) names[static_cast<size_t>(number)] = word;
  return names;
}

}  // namespace cairn::data
