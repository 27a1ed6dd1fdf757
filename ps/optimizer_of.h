// Converts the optimizer of a job to the configuration of ps/optim. Pure.
#pragma once

#include "cairn/v1/job.pb.h"
#include "ps/optim/optimizer.h"

namespace cairn::ps {

// The configuration for MakeOptimizer(), which checks it.
OptimizerConfig OptimizerOf(const v1::Job& job);

}  // namespace cairn::ps
