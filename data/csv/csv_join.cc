#include "data/csv/csv_join.h"

#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "common/core/files.h"
#include "common/core/status.h"
#include "data/csv/csv.h"
#include "data/csv/csv_labels.h"
#include "data/file/byte_reader.h"
#include "data/file_sets.h"

namespace cairn::data {
namespace {

// "DIR/X" for a file of interactions: DIR/X.inter, X.inter.gz or X.inter-00000-of-00002.
std::optional<std::string> StemOf(const std::string& path) {
  const size_t at = path.rfind(".inter");
  const size_t name_at = path.size() - std::filesystem::path(path).filename().string().size();
  if (at == std::string::npos || at < name_at) return std::nullopt;
  return path.substr(0, at);
}

// X.user for `stem` X, or else, if X names a set, the only file of its directory with this suffix; empty: none.
absl::StatusOr<std::string> FindBeside(const std::string& stem, absl::string_view suffix) {
  std::string own = absl::StrCat(stem, suffix);
  if (FileExists(own)) return own;
  if (!IsSetName(std::filesystem::path(stem).filename().string())) return "";
  const std::filesystem::path directory = std::filesystem::path(own).parent_path();
  std::vector<std::string> found;
  std::error_code error;  // a directory that cannot be read counts as empty
  std::filesystem::directory_iterator entry(directory.empty() ? "." : directory, error);
  for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
    if (entry->path().extension().string() == suffix) found.push_back(entry->path().string());
  }
  if (found.size() < 2) return found.empty() ? "" : found.front();
  absl::c_sort(found);
  return absl::InvalidArgumentError(absl::StrCat(found[0], " and ", found[1],
                                                 ": which of them belongs to the interactions is not known: "
                                                 "rename one of them to ",
                                                 own));
}

// The names of columns that must be found somewhere.
std::vector<std::string> WantedColumns(const DataOptions& options) {
  std::vector<std::string> wanted = options.feature_columns;
  if (wanted.empty() && options.trained_columns && options.trained_columns->format == kCsvFormat) {
    for (const size_t input : options.trained_columns->inputs) {
      wanted.push_back(options.trained_columns->names[input]);
    }
  }
  if (wanted.empty() && options.input_names.size() > 1) wanted = options.input_names;
  return wanted;
}

}  // namespace

absl::StatusOr<CsvJoin> CsvJoin::Load(const std::string& path, const CsvFields& header, char separator,
                                      const DataOptions& options) {
  CsvJoin join;
  const std::optional<std::string> stem = StemOf(path);
  if (!stem) return join;
  Wanted wanted{.header = header, .names = {}};
  for (std::string& name : WantedColumns(options)) {
    if (!absl::c_linear_search(header, name)) wanted.names.push_back(std::move(name));
  }
  if (wanted.names.empty()) return join;
  absl::Status ambiguous;
  for (const char* suffix : {".user", ".item"}) {
    const auto beside = FindBeside(*stem, suffix);
    if (!beside.ok()) {
      ambiguous.Update(beside.status());
    } else if (!beside->empty()) {
      CAIRN_RETURN_IF_ERROR(Annotate(join.Add(*beside, separator, wanted), *beside));
    }
  }
  const bool complete = absl::c_all_of(
      wanted.names, [&](const std::string& name) { return absl::c_linear_search(join.columns_, name); });
  if (!complete) CAIRN_RETURN_IF_ERROR(ambiguous);
  return join;
}

absl::StatusOr<std::vector<size_t>> CsvJoin::TakeHeader(const CsvFields& names, const Wanted& wanted,
                                                        Table& table) {
  std::vector<size_t> taken;
  const size_t before = columns_.size();  // columns of the other file
  for (size_t i = 1; i < names.size(); ++i) {
    if (!absl::c_linear_search(wanted.names, names[i])) continue;
    if (const auto there = absl::c_find(columns_, names[i]); there != columns_.end()) {
      const bool twice = static_cast<size_t>(there - columns_.begin()) >= before;
      return absl::InvalidArgumentError(twice ? absl::StrCat("has two columns '", names[i], "': rename one")
                                              : absl::StrCat("has a column '", names[i], "' that ",
                                                             tables_.front().path, " has too: rename one"));
    }
    taken.push_back(i);
    columns_.emplace_back(names[i]);
  }
  if (taken.empty()) return taken;
  const auto key = absl::c_find(wanted.header, names[0]);
  if (key == wanted.header.end()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "has '", names[0], "' as its first column, and the interactions have no column of this name"));
  }
  table.key = static_cast<size_t>(key - wanted.header.begin());
  return taken;
}

absl::Status CsvJoin::Add(const std::string& path, char separator, const Wanted& wanted) {
  CAIRN_ASSIGN_OR_RETURN(const SharedBytes bytes, ReadFileBytes(path));
  CsvReader csv({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, separator);
  Table table{.path = path};
  size_t width = 0;           // of the header; 0: not read yet
  std::vector<size_t> taken;  // columns of this file
  for (CsvFields fields;;) {
    const auto more = csv.Next(fields);
    const auto place = [&] { return absl::StrCat("line ", csv.line()); };
    if (!more.ok()) return Annotate(more.status(), place());
    if (!*more) break;
    if (csv.comment()) continue;
    if (width == 0) {
      width = fields.size();
      CAIRN_ASSIGN_OR_RETURN(taken, TakeHeader(WithoutTypes(fields), wanted, table));
      if (taken.empty()) return absl::OkStatus();
      continue;
    }
    if (fields.size() != width) {
      return absl::InvalidArgumentError(
          absl::StrCat(place(), ": has ", fields.size(), " fields, but the first line has ", width));
    }
    std::vector<std::string> values;
    for (const size_t column : taken) values.emplace_back(fields[column]);
    if (!table.rows.try_emplace(std::string(fields[0]), std::move(values)).second) {
      return absl::InvalidArgumentError(
          absl::StrCat(place(), ": has ", ShowField(fields[0]), " a second time"));
    }
  }
  if (width == 0) return absl::InvalidArgumentError("is empty");
  tables_.push_back(std::move(table));
  return absl::OkStatus();
}

absl::Status CsvJoin::Append(CsvFields& fields) const {
  for (const Table& table : tables_) {
    const auto row = table.rows.find(fields[table.key]);
    if (row == table.rows.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat("names ", ShowField(fields[table.key]), ", which ", table.path, " does not have"));
    }
    fields.insert(fields.end(), row->second.begin(), row->second.end());
  }
  return absl::OkStatus();
}

}  // namespace cairn::data
