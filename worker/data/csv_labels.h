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
  // Learns what the labels are from the labels.
  CsvLabels() = default;
  // Labels are the words `class_names` [class].
  explicit CsvLabels(const std::vector<std::string>& class_names);

  // For a set whose labels must be of the kind and the classes that were learned here.
  CsvLabels ForValidation() const;

  // Adds one label. `number`: its value, where it is one. INVALID_ARGUMENT saying what is wrong with it.
  absl::Status Add(absl::string_view text, std::optional<double> number);

  // All labels; ends the learning, so that words have their final indices.
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

// A field as messages show it: not all of a long one, without control characters.
std::string ShowField(absl::string_view field);

}  // namespace cairn::data
