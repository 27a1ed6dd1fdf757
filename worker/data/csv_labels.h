// The labels of CSV files: class indices, words that stand for classes, or numbers to regress to.
//
// Which of them follows from the training set: integral numbers from 0 up, also written as "1.0" or "1e+00",
// are class indices; words are classes in their sorted order; any other numbers are numbers. Words and
// numbers in one set are refused.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "worker/data/targets.h"

namespace cairn::data {

// One thread.
class CsvLabels {
 public:
  // Infers the kind of the labels from the labels.
  CsvLabels() = default;
  // Labels are the words `class_names` [class].
  explicit CsvLabels(const std::vector<std::string>& class_names);

  // Labels for a set that must have the kind and the classes that were learned here.
  CsvLabels ForValidation() const;

  // Adds one label. `number`: its value, if it is a number. INVALID_ARGUMENT names the fault of the label.
  absl::Status Add(absl::string_view text, std::optional<double> number);

  // Returns all labels. Learning ends, so words have their final indices.
  Targets Finish();

  int64_t size() const { return static_cast<int64_t>(labels_.size()); }
  // After Finish(): "class indices", "2 words: 0 'cat', 1 'dog'", "numbers".
  std::string Describe() const;
  // After Finish(): the words in the order of their class indices; empty where labels are no words.
  std::vector<std::string> class_names() const;

 private:
  enum class Kind { kUnknown, kClassIndices, kNumbers, kWords };

  absl::Status AddWord(absl::string_view word, bool is_number);
  absl::Status AddNumber(absl::string_view text, double number);
  void NumberWords();

  bool learning_ = true;
  Kind kind_ = Kind::kUnknown;
  std::map<std::string, int64_t> words_;  // class index of each; while learning, in the order of appearance
  std::vector<float> labels_;             // [examples]
  int64_t largest_ = -1;                  // of class indices
};

// A field for messages: shortened if it is long, without control characters.
std::string ShowField(absl::string_view field);

}  // namespace cairn::data
