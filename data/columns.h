// The named columns of CSV, TFRecord, Criteo and libsvm files that a model was trained on. Later sets of examples are
// read by these names, since the order of columns in another file need not be the order of the model's inputs.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "absl/types/span.h"

namespace cairn::data {

inline constexpr char kCsvFormat[] = "CSV";
inline constexpr char kTfRecordFormat[] = "TFRecord";
inline constexpr char kCriteoFormat[] = "Criteo";
inline constexpr char kLibsvmFormat[] = "libsvm";

// A value type; any thread.
struct Columns {
  std::string format;  // kCsvFormat, kTfRecordFormat, kCriteoFormat, kLibsvmFormat
  bool named = true;   // false: CSV without a header, whose names are numbers from 0
  // CSV, Criteo, libsvm: all columns, in the order of the file; TFRecord: the columns that are read.
  std::vector<std::string> names{};
  std::vector<size_t> inputs{};   // indices into names, in the order of the model's inputs
  std::optional<size_t> label{};  // index into names; nullopt: no label
  // The value of an empty field; nullopt: an empty field is an error.
  std::optional<float> missing_value{};
  bool hashed_ids = false;  // DataOptions::hash_ids

  friend bool operator==(const Columns&, const Columns&) = default;
};

// "a, b, c". If there are many names, only the first are listed.
std::string ListColumns(absl::Span<const std::string> names);
// Lists the names that have the indices `columns`.
std::string ListColumns(const std::vector<std::string>& names, absl::Span<const size_t> columns);

}  // namespace cairn::data
