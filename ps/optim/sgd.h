// Keras' SGD: plain, with momentum, or with Nesterov's momentum.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "ps/optim/isa.h"
#include "ps/optim/optimizer.h"

namespace cairn::ps {

// As MakeOptimizer(), which calls it by name.
absl::StatusOr<std::unique_ptr<Optimizer>> MakeSgd(const OptimizerConfig& config, Isa isa);

}  // namespace cairn::ps
