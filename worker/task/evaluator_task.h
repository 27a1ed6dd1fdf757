// The evaluator: a task outside the job that evaluates the job's checkpoints as they appear in --train_dir,
// like TensorFlow's evaluator.
//
// Run by cairn-worker's main thread. It needs neither servers nor workers, and never writes a checkpoint.
#pragma once

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "common/core/clock.h"
#include "nn/replica/replica.h"
#include "worker/inputs/inputs.h"
#include "worker/options/options.h"

namespace cairn::worker {

struct EvaluatorTask {
  const TrainOptions& options;  // --train_dir must be set
  const Inputs& inputs;
  nn::Replica& replica;        // of inputs.trained()
  Duration patience;           // the longest time without a new checkpoint
  std::function<bool()> stop;  // polled often, also during an evaluation
};

// Evaluates each checkpoint of --train_dir once, in the order of steps, on the validation set, or on all
// examples if the data set has no validation set. Each evaluation prints a line to stdout and writes, for
// TensorBoard, `evaluation_<metric>_vs_iterations` to <train_dir>/eval. OK once the job's last step has been
// evaluated, or if no new checkpoint has followed the last one for `patience`. DEADLINE_EXCEEDED if no
// checkpoint at all has appeared for `patience`; FAILED_PRECONDITION for a checkpoint of another model, or of
// other data; CANCELLED after `stop` returned true.
absl::Status RunEvaluator(const EvaluatorTask& task);

}  // namespace cairn::worker
