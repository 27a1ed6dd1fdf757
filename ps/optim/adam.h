// Keras' Adam (Kingma and Ba, ICLR 2015, end of section 2: epsilon outside the bias correction).
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "ps/optim/isa.h"
#include "ps/optim/optimizer.h"

namespace cairn::ps {

// As MakeOptimizer(), which calls it by name.
absl::StatusOr<std::unique_ptr<Optimizer>> MakeAdam(const OptimizerConfig& config, Isa isa);

}  // namespace cairn::ps
