// Columns of users and items for RecBole's interactions: beside X.inter, the files X.user and X.item have one row for
// each user and item, and the first column of each is the id that the interactions name.
//
// If there is no X.user and X is the name of a set (train, test, valid, validation or val, or a piece such as train-0),
// the only .user file of the directory takes its place, so train.inter and test.inter share one. The same holds for
// .item.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "data/csv/csv_schema.h"
#include "data/dataset.h"

namespace cairn::data {

// The columns beside one file of interactions. One thread.
class CsvJoin {
 public:
  // Joins nothing.
  CsvJoin() = default;

  // Reads the files beside `path` that have columns which `options` select by name and `header`, that of `path`,
  // lacks. Joins nothing if there are none, or if the name of `path` lacks ".inter". INVALID_ARGUMENT naming the file
  // for rows that are malformed, for ids that occur twice or that `header` has no column for, for a column that a file
  // has twice or that both files have, and for several files that could have a column that is not found elsewhere.
  static absl::StatusOr<CsvJoin> Load(const std::string& path, const CsvFields& header, char separator,
                                      const DataOptions& options);

  // The names of the columns that Append() adds.
  const std::vector<std::string>& columns() const { return columns_; }
  // Adds the values of columns(), which live as long as this object, to `fields`, a row of the interactions.
  // INVALID_ARGUMENT naming an id that the file of users or items does not have.
  absl::Status Append(CsvFields& fields) const;

 private:
  // The columns of one file.
  struct Table {
    std::string path;
    size_t key = 0;  // the column of the interactions that has the ids
    std::map<std::string, std::vector<std::string>, std::less<>> rows{};  // by the id
  };

  // Requirements of the rows: the header of the interactions, and columns to find.
  struct Wanted {
    const CsvFields& header;
    std::vector<std::string> names;
  };

  // Adds the columns of the file `path` that are wanted.
  absl::Status Add(const std::string& path, char separator, const Wanted& wanted);
  // Adds the names of the wanted columns that the header `names` of `table` has, and returns their indices.
  absl::StatusOr<std::vector<size_t>> TakeHeader(const CsvFields& names, const Wanted& wanted, Table& table);

  std::vector<Table> tables_;
  std::vector<std::string> columns_;
};

}  // namespace cairn::data
