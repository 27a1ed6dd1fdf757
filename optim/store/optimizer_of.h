// Converts the optimizer of a job, or of a table, to the configuration of optim. Pure.
#pragma once

#include "cairn/v1/job.pb.h"
#include "optim/optimizer.h"

namespace cairn::optim {

// The configuration for MakeOptimizer(), which checks it.
OptimizerConfig OptimizerConfigOf(const v1::OptimizerConfig& proto);
inline OptimizerConfig OptimizerOf(const v1::Job& job) {
  return OptimizerConfigOf(job.optimizer());
}

}  // namespace cairn::optim
