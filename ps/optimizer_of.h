// The optimizer that a job names, in the words of ps/optim. Pure.
#pragma once

#include "cairn/v1/job.pb.h"
#include "ps/optim/optimizer.h"

namespace cairn::ps {

// What MakeOptimizer() checks and makes.
OptimizerConfig OptimizerOf(const v1::Job& job);

}  // namespace cairn::ps
