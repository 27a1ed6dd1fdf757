// The chief's result: the last line of stdout, --summary and --export_dir.
#pragma once

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "worker/embedding/trained_tables.h"
#include "worker/inputs/inputs.h"
#include "worker/options/options.h"
#include "worker/report/summary.h"

namespace cairn::worker {

// Writes the result of a job: first the model with the trained `parameters` to --export_dir, then `summary` to
// stdout and to --summary. `take_tables` is called for --export_dir, if the job has tables. Blocks on the disk. If one
// of them fails, writes the others and returns the first error.
absl::Status Publish(const Summary& summary, const TrainOptions& options, const Inputs& inputs,
                     absl::Span<const float> parameters, const TakeTables& take_tables);

}  // namespace cairn::worker
