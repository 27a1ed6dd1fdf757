// The chief's result: the last line of stdout, --summary and --export_dir.
#pragma once

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "worker/embedding/table_rows.h"
#include "worker/inputs/inputs.h"
#include "worker/options/options.h"
#include "worker/report/summary.h"

namespace cairn::worker {

// Writes the result of a job: first the model with the trained `parameters` to --export_dir, then `summary` to
// stdout and to --summary. `tables`: those of the job, for --export_dir; null: it has none. Blocks on the disk. If one
// of them fails, writes the others and returns the first error.
absl::Status Publish(const Summary& summary, const TrainOptions& options, const Inputs& inputs,
                     absl::Span<const float> parameters, const TableRows* tables);

}  // namespace cairn::worker
