// Checks before training that a job's results can be written. Changes nothing.
#pragma once

#include "absl/status/status.h"
#include "worker/options.h"

namespace cairn::worker {

// Checks --summary, --export_dir and --train_dir, for the task that writes them. INVALID_ARGUMENT names the
// flag and the reason.
// Callbacks::Create() checks --save_best, and CheckTraceFlags() checks --trace_file.
absl::Status CheckOutputPaths(const TrainOptions& options);

}  // namespace cairn::worker
