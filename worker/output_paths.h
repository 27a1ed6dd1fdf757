// Whether a job's results can be written: tried before the training that makes them, changing nothing.
#pragma once

#include "absl/status/status.h"
#include "worker/options.h"

namespace cairn::worker {

// Of the task that writes them: --summary, --export_dir and --train_dir. INVALID_ARGUMENT names the flag and
// the reason.
// --save_best is Callbacks::Create()'s to check, --trace_file CheckTraceFlags()'s.
absl::Status CheckOutputPaths(const TrainOptions& options);

}  // namespace cairn::worker
