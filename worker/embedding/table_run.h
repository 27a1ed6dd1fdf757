// The description of the tables of a job in a checkpoint.
//
// Pure functions; any thread.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "cairn/v1/job.pb.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/checkpoint/run_state.h"

namespace cairn::worker {

// The tables of `job`, in their order; nullopt if it has none. INVALID_ARGUMENT if an optimizer has no form for rows.
absl::StatusOr<std::optional<std::vector<TableRun>>> TablesOf(const v1::Job& job);

// FAILED_PRECONDITION, naming the table, if a job with the tables `ours` cannot continue with those of a checkpoint.
absl::Status CheckSameTables(const std::optional<std::vector<TableRun>>& ours, const RunState& theirs);

// Fills `into` [vocabulary_size, dim] with a table as it is in the checkpoint, for a model that has it as a variable.
// Rows that do not exist have their first values. FAILED_PRECONDITION for a table that takes any id; also LoadTable()'s
// errors.
absl::Status FillWithTable(const Checkpoint& checkpoint, const TableRun& table, absl::Span<float> into);

}  // namespace cairn::worker
