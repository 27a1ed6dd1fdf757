// The rows of trained tables, passed one batch after another: exports write them without holding a table in memory.
#pragma once

#include <cstdint>
#include <functional>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/embedding/table_plan.h"
#include "worker/embedding/trained_tables.h"
#include "worker/tables/snapshot_rows.h"

namespace cairn::worker {

// The tables of a model, whose rows Stream() passes, any number of times. Both must outlive the object.
struct TableRows {
  const TablePlan& plan;
  std::function<absl::Status(RowSink&)> stream;
  const TrainedTables* in_memory = nullptr;  // the same tables; null: they are elsewhere
};

// The rows of tables in memory.
TableRows RowsOf(const TrainedTables& tables);
// Tables in memory with the rows of the stream, if check(number of values of all tables) returns OK; otherwise its
// error. Throws OutOfMemory.
absl::StatusOr<TrainedTables> Collect(const TableRows& rows,
                                      absl::FunctionRef<absl::Status(int64_t values)> check);

}  // namespace cairn::worker
