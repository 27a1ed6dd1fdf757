// The evaluator: a task beside the job that evaluates its checkpoints as they appear in --train_dir, as
// TensorFlow's does.
//
// Run by cairn-worker's main thread. It needs neither servers nor workers, and never writes a checkpoint.
#pragma once

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "common/core/clock.h"
#include "worker/inputs.h"
#include "worker/nn/replica.h"
#include "worker/options.h"

namespace cairn::worker {

struct EvaluatorTask {
  const TrainOptions& options;  // --train_dir is given
  const Inputs& inputs;
  nn::Replica& replica;
  Duration patience;           // without a new checkpoint
  std::function<bool()> stop;  // asked often; may be called while it evaluates
};

// Evaluates each checkpoint of --train_dir once, in the order of steps, on the validation set (or, of a data
// set without one, on all of it): a line on stdout each, and `evaluation_<metric>_vs_iterations` for
// TensorBoard in <train_dir>/eval. OK when the job's last step has been evaluated, or no checkpoint has come
// for `patience` since the last one. DEADLINE_EXCEEDED when none has come at all; FAILED_PRECONDITION for a
// checkpoint of another model; CANCELLED when `stop` said so.
absl::Status RunEvaluator(const EvaluatorTask& task);

}  // namespace cairn::worker
