// Checks, before training, that a job's results can be written. Changes nothing.
#pragma once

#include "absl/status/status.h"
#include "worker/options/options.h"

namespace cairn::worker {

// Checks --summary, --export_dir and --train_dir. Called by the task that writes them. INVALID_ARGUMENT
// naming the flag and the reason. --save_best is checked by Callbacks::Create(), --trace_file by
// CheckTraceFlags().
absl::Status CheckOutputPaths(const TrainOptions& options);

}  // namespace cairn::worker
