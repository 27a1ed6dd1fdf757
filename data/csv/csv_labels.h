// The labels of CSV files: class indices, words that name classes, or numbers for regression.
//
// The training set determines the kind: non-negative integers, also written as "1.0" or "1e+00", are class
// indices; words are classes in sorted order; any other numbers are regression targets. A mixture of words
// and numbers is an error.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "data/targets.h"

namespace cairn::data {

// One thread.
class CsvLabels {
 public:
  // Infers the kind from the labels.
  CsvLabels() = default;
  // The labels are the words `class_names` [class].
  explicit CsvLabels(const std::vector<std::string>& class_names);

  // For the labels of the validation set, which must have the same kind and classes as these labels. `any_number`: if
  // these labels are class indices, any numbers may take their place, since a threshold makes classes of them.
  CsvLabels ForValidation(bool any_number) const;

  // Adds one label. `number`: its value, if it is a number. INVALID_ARGUMENT describes the error in the
  // label.
  absl::Status Add(absl::string_view text, std::optional<double> number);

  // Returns all labels, and ends inference: words get their final indices.
  Targets Finish();

  int64_t size() const { return static_cast<int64_t>(labels_.size()); }
  // After Finish(): "class indices", "2 classes: 0 'cat', 1 'dog'", "numbers".
  std::string Describe() const;
  // After Finish(): the words in the order of their class indices; empty if labels are not words.
  std::vector<std::string> class_names() const;

 private:
  enum class Kind { kUnknown, kClassIndices, kNumbers, kWords };

  absl::Status AddWord(absl::string_view word, bool is_number);
  absl::Status AddNumber(absl::string_view text, double number);
  void NumberWords();

  bool learning_ = true;
  Kind kind_ = Kind::kUnknown;
  // The class index of each word; during inference, in the order of appearance.
  std::map<std::string, int64_t> words_;
  std::vector<float> labels_;  // [examples]
  int64_t largest_ = -1;       // largest class index
};

// A field for messages: shortened if it is long, without control characters.
std::string ShowField(absl::string_view field);

}  // namespace cairn::data
