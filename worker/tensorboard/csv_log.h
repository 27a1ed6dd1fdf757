// log.csv in the format of Keras' CSVLogger: a header, then one row per epoch with "epoch" first, counted
// from 0, then the metrics sorted by name. One thread.
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
  // Opens the file at `path`, if it exists, to continue at `epoch`: the rows of this and later epochs are
  // removed, because these epochs are trained again. DATA_LOSS if the file is not such a log.
  static absl::StatusOr<CsvLog> Open(const std::string& path, int64_t epoch);

  // Appends a row. If the header lacks a metric, the file is rewritten, with an empty field in older rows.
  absl::Status Add(int64_t epoch, const std::map<std::string, double>& metrics);

  // Whether the row of `epoch` is missing, or has no value in a column whose name begins with `prefix`.
  bool Lacks(int64_t epoch, absl::string_view prefix) const;
  // Adds values to the row of `epoch`, or adds the row if it is missing, and rewrites the file.
  absl::Status Complete(int64_t epoch, const std::map<std::string, double>& metrics);

 private:
  // Adds columns for `metrics`, sorted by name. Returns false if all of them existed.
  bool AddColumns(const std::map<std::string, double>& metrics);
  explicit CsvLog(std::string path) : path_(std::move(path)) {}
  absl::Status Rewrite() const;
  std::string Line(const std::map<std::string, std::string>& row) const;

  std::string path_;
  std::vector<std::string> columns_;                      // the first is "epoch"; empty: the file is empty
  std::vector<std::map<std::string, std::string>> rows_;  // [row][column] as written
};

}  // namespace cairn::worker
