#include "worker/tensorboard/csv_log.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <fstream>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/core/files.h"
#include "common/core/status.h"

namespace cairn::worker {
namespace {

constexpr char kEpoch[] = "epoch";

// The shortest text that reads back as the same number, as Python writes it.
std::string Shortest(double value) {
  std::array<char, 32> text{};
  const auto end = std::to_chars(text.data(), text.data() + text.size(), value);
  return std::string(text.data(), end.ptr);
}

}  // namespace

absl::StatusOr<CsvLog> CsvLog::Open(const std::string& path, int64_t epoch) {
  CsvLog log(path);
  if (!FileExists(path)) return log;
  CAIRN_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  bool changed = !text.empty() && text.back() != '\n';  // a last row that is cut short is removed
  std::vector<std::string> lines = absl::StrSplit(text, '\n');
  lines.pop_back();  // the text after the last newline
  if (lines.empty()) return log;
  log.columns_ = absl::StrSplit(lines.front(), ',');
  if (log.columns_.front() != kEpoch) {
    return absl::DataLossError(
        absl::StrCat(path, ": its header begins with '", log.columns_.front(), "', not 'epoch'"));
  }
  for (size_t i = 1; i < lines.size(); ++i) {
    const std::vector<std::string> fields = absl::StrSplit(lines[i], ',');
    int64_t row_epoch = 0;
    if (fields.size() != log.columns_.size() || !absl::SimpleAtoi(fields.front(), &row_epoch)) {
      return absl::DataLossError(absl::StrCat(path, ":", i + 1, ": '", lines[i],
                                              "' does not match the header's ", log.columns_.size(),
                                              " columns"));
    }
    if (row_epoch >= epoch) {
      changed = true;
      continue;
    }
    log.rows_.emplace_back();
    for (size_t column = 0; column < fields.size(); ++column) {
      log.rows_.back()[log.columns_[column]] = fields[column];
    }
  }
  if (changed) CAIRN_RETURN_IF_ERROR(log.Rewrite());
  return log;
}

bool CsvLog::Lacks(int64_t epoch, absl::string_view prefix) const {
  return std::none_of(rows_.begin(), rows_.end(), [&](const std::map<std::string, std::string>& row) {
    return row.at(kEpoch) == absl::StrCat(epoch) &&
           std::any_of(row.begin(), row.end(), [&](const auto& field) {
             return absl::StartsWith(field.first, prefix) && !field.second.empty();
           });
  });
}

absl::Status CsvLog::Complete(int64_t epoch, const std::map<std::string, double>& metrics) {
  auto row = std::find_if(rows_.begin(), rows_.end(),
                          [&](const auto& known) { return known.at(kEpoch) == absl::StrCat(epoch); });
  if (row == rows_.end()) row = rows_.emplace(rows_.end());
  (*row)[kEpoch] = absl::StrCat(epoch);
  for (const auto& [name, value] : metrics) (*row)[name] = Shortest(value);
  AddColumns(metrics);
  return Rewrite();
}

bool CsvLog::AddColumns(const std::map<std::string, double>& metrics) {
  std::set<std::string> names;
  for (const auto& metric : metrics) names.insert(metric.first);
  const bool fits = std::all_of(names.begin(), names.end(), [this](const std::string& name) {
    return std::find(columns_.begin(), columns_.end(), name) != columns_.end();
  });
  if (!columns_.empty() && fits) return false;
  names.insert(columns_.begin(), columns_.end());
  names.erase(kEpoch);
  columns_ = {kEpoch};
  columns_.insert(columns_.end(), names.begin(), names.end());
  return true;
}

absl::Status CsvLog::Add(int64_t epoch, const std::map<std::string, double>& metrics) {
  std::map<std::string, std::string> row = {{kEpoch, absl::StrCat(epoch)}};
  for (const auto& [name, value] : metrics) row[name] = Shortest(value);
  rows_.push_back(row);
  if (AddColumns(metrics)) return Rewrite();
  std::ofstream file(path_, std::ios::app);
  file << Line(row) << std::flush;
  return file.good() ? absl::OkStatus() : absl::ErrnoToStatus(errno, path_);
}

absl::Status CsvLog::Rewrite() const {
  std::string text = absl::StrCat(absl::StrJoin(columns_, ","), "\n");
  for (const auto& row : rows_) text += Line(row);
  return WriteFileAtomically(path_, text);
}

std::string CsvLog::Line(const std::map<std::string, std::string>& row) const {
  std::vector<std::string> fields;
  for (const std::string& column : columns_) {
    const auto found = row.find(column);
    fields.push_back(found == row.end() ? "" : found->second);
  }
  return absl::StrCat(absl::StrJoin(fields, ","), "\n");
}

}  // namespace cairn::worker
