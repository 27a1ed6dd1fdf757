// The named columns of CSV and TFRecord files that a model was trained on. Later sets of examples are read by
// them: the order of the columns in another file says nothing about the order of the model's inputs.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "absl/types/span.h"

namespace cairn::data {

inline constexpr char kCsvFormat[] = "CSV";
inline constexpr char kTfRecordFormat[] = "TFRecord";

// A value; any thread.
struct Columns {
  std::string format;                    // kCsvFormat, kTfRecordFormat
  bool named = true;                     // false: CSV without a header, whose names are numbers from 0
  std::vector<std::string> names{};      // CSV: all of a file, in its order; TFRecord: those that are read
  std::vector<size_t> inputs{};          // indices into names, in the order of the model's inputs
  std::optional<size_t> label{};         // index into names; nullopt: no label
  std::optional<float> missing_value{};  // what an empty field stands for; nullopt: it is a fault

  friend bool operator==(const Columns&, const Columns&) = default;
};

// "a, b, c"; of many names only the first are listed.
std::string ListColumns(absl::Span<const std::string> names);
// The same of names[i] for each of `columns`.
std::string ListColumns(const std::vector<std::string>& names, absl::Span<const size_t> columns);

}  // namespace cairn::data
