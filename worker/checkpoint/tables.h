// The tables of a checkpoint, in the forms that servers and models need. They are read in pieces, because they may be
// larger than the memory.
//
// One thread; blocks while the disk reads. Errors are those of Checkpoint::Load(), and DATA_LOSS, naming the table, if
// its tensors do not fit together. The checkpoint must outlive the readers.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/checkpoint/run_state.h"

namespace cairn::worker {

// Reads the rows of a table in the order of the checkpoint.
class RowReader {
 public:
  // Checks the shapes of the table's tensors.
  static absl::StatusOr<RowReader> Open(const Checkpoint& checkpoint, const TableRun& table);

  int64_t rows() const { return rows_; }
  // The number of floats of a record: the id (embedding::kIdFloats), the values, and the slots.
  int64_t record_floats() const { return record_floats_; }
  // Fills `records` with the next records; there must be so many left.
  absl::Status Read(absl::Span<float> records);

 private:
  // A tensor of the table, and its place in a record.
  struct Column {
    int64_t begin = 0, floats = 0;
    TensorReader reader;
  };
  RowReader() = default;

  std::vector<std::unique_ptr<Column>> columns_;
  int64_t rows_ = 0;
  int64_t record_floats_ = 0;
  std::vector<float> column_;
};

// The states of all tables (RunState::tables), divided among so many servers, in the form of
// embedding/store/table_state.h. The checkpoint may be of any number of servers.
class TableStates {
 public:
  // Reads the ids of all rows, and checks their order.
  static absl::StatusOr<std::unique_ptr<TableStates>> Open(const Checkpoint& checkpoint, int servers);

  // The number of floats in each state: [server][table].
  const std::vector<std::vector<int64_t>>& sizes() const { return sizes_; }
  // Fills the front of `into` with the next floats of a state and returns their number, at least 1 if `into` has room
  // for one record. The states of a table must be read in the order of the servers.
  absl::StatusOr<int64_t> Read(int server, size_t table, absl::Span<float> into);

 private:
  struct Table {
    TableRun run;
    RowReader reader;
    std::vector<int64_t> left;    // [server] rows that have not been read
    std::vector<bool> head_read;  // [server]
  };
  TableStates() = default;

  std::vector<Table> tables_;
  std::vector<std::vector<int64_t>> sizes_;
};

}  // namespace cairn::worker
