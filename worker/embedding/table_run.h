// The description of the tables of a job in a checkpoint.
//
// Pure functions; any thread.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cairn/v1/job.pb.h"
#include "embedding/initializers/row_distribution.h"
#include "embedding/optimizers/row_optimizer.h"
#include "worker/checkpoint/run_state.h"

namespace cairn::worker {

// The tables of `job`, in their order; nullopt if it has none. INVALID_ARGUMENT if an optimizer has no form for rows.
absl::StatusOr<std::optional<std::vector<TableRun>>> TablesOf(const v1::Job& job);

// FAILED_PRECONDITION, naming the table, if a job with the tables `ours` cannot continue with those of a checkpoint.
absl::Status CheckSameTables(const std::optional<std::vector<TableRun>>& ours, const RunState& theirs);

// The distribution of the first values of a table's rows. FAILED_PRECONDITION, naming the table, for an unknown one.
absl::StatusOr<embedding::RowDistribution> DistributionOf(const TableRun& table);

// Sets the slots of rows with this optimizer.
void SetSlots(const embedding::RowOptimizer& optimizer, TableRun& table);

}  // namespace cairn::worker
