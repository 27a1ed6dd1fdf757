// Keras' Adagrad (Duchi, Hazan and Singer, JMLR 12, 2011).
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "ps/optim/isa.h"
#include "ps/optim/optimizer.h"

namespace cairn::ps {

// As MakeOptimizer(), which calls it by name.
absl::StatusOr<std::unique_ptr<Optimizer>> MakeAdagrad(const OptimizerConfig& config, Isa isa);

}  // namespace cairn::ps
