// Converts between the state of a run in a checkpoint and the messages of the servers.
//
// Pure functions; any thread.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cairn/v1/job.pb.h"
#include "worker/checkpoint/run_state.h"

namespace cairn::worker {

// A snapshot without its tensors.
struct RunDescription {
  const v1::Job& job;
  const v1::Progress& progress;
  const std::vector<std::string>& slots;  // the optimizer's, in the order of the state
  const std::string& mode;                // RunState::mode
  std::optional<std::vector<TableRun>> tables{};
};
RunState RunStateOf(const RunDescription& run);

// The hyperparameter that is the learning rate of an optimizer: Keras' "learning_rate", or torch's "lr".
std::string LearningRateName(const v1::OptimizerConfig& optimizer);

// The progress at which a job with this optimizer resumes. The learning rate that the run had reached is kept,
// unless the optimizer has another initial rate or a schedule. The positions are those of the run's own
// workers and epochs.
v1::Progress ProgressOf(const RunState& run, const v1::OptimizerConfig& optimizer);

}  // namespace cairn::worker
