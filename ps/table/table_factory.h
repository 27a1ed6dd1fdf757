// Makes the tables that a job has beside its variables, for each kind that a server knows.
//
// Passed to the server by its owner, and outlives it. Thread-safe.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "cairn/v1/job.pb.h"
#include "optim/store/memory_budget.h"
#include "ps/table/table.h"

namespace cairn::ps {

class TableFactory {
 public:
  virtual ~TableFactory() = default;
  // The bytes that this table of the job needs on this server, pushes and snapshots included. INVALID_ARGUMENT
  // if the table is of an unknown kind, or its description is invalid.
  virtual absl::StatusOr<double> BytesOf(const v1::Table& table, const v1::Job& job) const = 0;
  // Makes the part of a table that belongs to `server`, at the version where the job begins. BytesOf() accepts the
  // table, which counts what it allocates in `budget`.
  virtual std::unique_ptr<Table> Make(const v1::Table& table, const v1::Job& job, int server,
                                      std::shared_ptr<optim::MemoryBudget> budget) const = 0;
};

// Makes all tables of a job but its variables.
using TableMaker =
    std::function<std::vector<std::unique_ptr<Table>>(const std::shared_ptr<optim::MemoryBudget>& budget)>;

}  // namespace cairn::ps
