// The description of the tables of a job in a checkpoint.
//
// Pure functions; any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cairn/v1/job.pb.h"
#include "embedding/initializers/row_distribution.h"
#include "embedding/optimizers/row_optimizer.h"
#include "embedding/store/table_state.h"
#include "worker/checkpoint/run_state.h"

namespace cairn::worker {

// The tables of `job`, in their order; nullopt if it has none. INVALID_ARGUMENT, naming the table, if its
// optimizer has no form for rows.
absl::StatusOr<std::optional<std::vector<TableRun>>> TablesOf(const v1::Job& job);

// FAILED_PRECONDITION, naming the table, if a job with the tables `ours` cannot continue with those of a checkpoint.
absl::Status CheckSameTables(const std::optional<std::vector<TableRun>>& ours, const RunState& theirs);

// The distribution of the first values of a table's rows. FAILED_PRECONDITION, naming the table, for an unknown one.
absl::StatusOr<embedding::RowDistribution> DistributionOf(const TableRun& table);

// The optimizer of the table's rows, which may store them in another form than that of their values.
// FAILED_PRECONDITION, naming the table, if it has other slots here.
absl::StatusOr<std::unique_ptr<const embedding::RowOptimizer>> OptimizerOf(const TableRun& table);

// INVALID_ARGUMENT unless `id` is of the table, and follows the ids that `order` has seen.
absl::Status CheckId(const TableRun& table, int64_t id, embedding::RowOrder& order);

// Sets the slots of rows with this optimizer.
void SetSlots(const embedding::RowOptimizer& optimizer, TableRun& table);

}  // namespace cairn::worker
