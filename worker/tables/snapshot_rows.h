// The rows of the tables in a snapshot, passed one batch after another: exports write them without holding a table in
// memory.
//
// One thread.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "client/snapshot.h"
#include "client/table_states.h"
#include "embedding/optimizers/row_optimizer.h"
#include "embedding/store/table_state.h"
#include "worker/checkpoint/run_state.h"

namespace cairn::worker {

// Receives the rows that training has made. One thread. An error ends the stream.
class RowSink {
 public:
  virtual ~RowSink() = default;
  // The tables in the order of the plan, and the number of rows of each. Called before the first row; again if the
  // stream starts over.
  virtual absl::Status Begin(absl::Span<const TableRun> tables, absl::Span<const int64_t> rows) = 0;
  // Whether Add() is called for the rows of this table.
  virtual bool Wants(size_t /*table*/) const { return true; }
  // Rows [first, first + ids.size()) of a table, in the order of a checkpoint: `values` [id] [dim], which are finite.
  virtual absl::Status Add(size_t table, int64_t first, absl::Span<const int64_t> ids,
                           absl::Span<const float> values) = 0;
};

// Passes the rows of a snapshot to a RowSink. INTERNAL, naming the table, if a state is not one; INVALID_ARGUMENT if a
// row is not of the table; OUT_OF_RANGE, naming table and id, if a value is NaN or infinite.
class SnapshotRows final : public client::TableSink {
 public:
  explicit SnapshotRows(RowSink& sink) : sink_(sink) {}
  absl::Status Begin(const client::Snapshot& snapshot, const client::TableSizes& sizes) override;
  absl::Status Add(int server, int table, absl::Span<const float> piece) override;
  // To be called at the end: INTERNAL, naming the table, if rows are missing.
  absl::Status Finish() const;

 private:
  // The state of a table on one server.
  struct State {
    embedding::StateParser parser;
    embedding::RowOrder order{};
    int64_t next = 0;  // row of the table
  };
  absl::Status PassRows(size_t table, State& state, absl::Span<const float> records);

  RowSink& sink_;
  std::vector<TableRun> tables_;
  std::vector<std::unique_ptr<const embedding::RowOptimizer>> optimizers_;  // [table]
  std::vector<std::vector<State>> states_;                                  // [server][table]
  int64_t step_ = 0;
  std::vector<int64_t> ids_;
  std::vector<const float*> rows_;
  std::vector<float> values_;
};

}  // namespace cairn::worker
