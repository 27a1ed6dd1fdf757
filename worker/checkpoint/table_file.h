// The tables of one server in a checkpoint: a file that is written as pieces of their states arrive.
//
// One thread. Needs the memory of a piece.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "embedding/store/table_state.h"
#include "worker/checkpoint/file_io.h"
#include "worker/checkpoint/run_state.h"
#include "worker/checkpoint/state_file.h"

namespace cairn::worker {

// The rows [begin, end) of a table's `total`.
struct RowRange {
  int64_t begin = 0, end = 0, total = 0;
};

class TableFile {
 public:
  // A table and the rows of it that the server has.
  struct Part {
    TableRun table;
    RowRange rows;
  };
  // Creates the file, with the tables that have rows on this server, and with those that `keeps_empty` says: they have
  // no rows on any server. If there are none, there is no file.
  static absl::StatusOr<TableFile> Create(const std::string& path, absl::Span<const Part> tables,
                                          bool keeps_empty);

  // The next floats of the state of a table, counted from 0, in the form of embedding/store/table_state.h.
  // INVALID_ARGUMENT naming the table if its head has another number of rows, or if it has too many floats.
  absl::Status Add(size_t table, absl::Span<const float> piece);
  // The learning rate in the state of a table; after its first floats.
  float learning_rate(size_t table) const { return tables_[table].parser.head().learning_rate; }
  // Ends the file. Its `name` is not set; without tensors, there is no file. INVALID_ARGUMENT naming the table if rows
  // are missing.
  absl::StatusOr<FileEntry> Finish();

 private:
  // A tensor: some columns of the rows.
  struct Column {
    int64_t floats = 0;   // of a row
    size_t entry = 0;     // in entry_.tensors
    uint64_t offset = 0;  // of the tensor, in bytes from the start of the file
  };
  struct State {
    TableRun table;
    int64_t rows = 0;  // of this server
    embedding::StateParser parser;
    std::vector<Column> columns{};
    int64_t written = 0;  // rows
  };

  TableFile() = default;
  void AddTensors(const Part& part, State& state);
  absl::Status WriteRows(State& state, absl::Span<const float> records);

  std::vector<State> tables_;
  std::optional<OutputFile> file_;
  FileEntry entry_;
  std::vector<float> batch_;
};

}  // namespace cairn::worker
