// Converts the optimizer of a job to the configuration of optim. Pure.
#pragma once

#include "cairn/v1/job.pb.h"
#include "optim/optimizer.h"

namespace cairn::optim {

// The configuration for MakeOptimizer(), which checks it.
OptimizerConfig OptimizerOf(const v1::Job& job);

}  // namespace cairn::optim
