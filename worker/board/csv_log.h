// log.csv as Keras' CSVLogger writes it: a header, then a row per epoch, "epoch" first and counted from 0,
// the metrics in the order of their names. One thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace cairn::worker {

class CsvLog {
 public:
  // Goes on with the file at `path`, if there is one, from `epoch`: later rows are of a past that is trained
  // again, and go. DATA_LOSS when it is no such file.
  static absl::StatusOr<CsvLog> Open(const std::string& path, int64_t epoch);

  // Rows are appended; a metric that the header lacks has the file written anew, with the field empty in
  // older rows.
  absl::Status Add(int64_t epoch, const std::map<std::string, double>& metrics);

  // Whether the row of `epoch` is missing, or has no value in a column whose name begins with `prefix`.
  bool Lacks(int64_t epoch, absl::string_view prefix) const;
  // Adds values to the row of `epoch`, or the row where it is missing; the file is written anew.
  absl::Status Complete(int64_t epoch, const std::map<std::string, double>& metrics);

 private:
  // Columns for `metrics`, in the order of their names; false when all were there.
  bool AddColumns(const std::map<std::string, double>& metrics);
  explicit CsvLog(std::string path) : path_(std::move(path)) {}
  absl::Status Rewrite() const;
  std::string Line(const std::map<std::string, std::string>& row) const;

  std::string path_;
  std::vector<std::string> columns_;  // the first is "epoch"; empty: nothing is in the file
  std::vector<std::map<std::string, std::string>> rows_;  // [row][column] as written
};

}  // namespace cairn::worker
