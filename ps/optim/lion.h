// Keras' Lion (Chen et al., arXiv:2302.06675, Algorithm 2).
#pragma once

#include <memory>

#include "ps/optim/hyperparameters.h"
#include "ps/optim/isa.h"
#include "ps/optim/rule.h"

namespace cairn::ps {

// Reads exactly its own hyperparameters from `read`, which records the errors.
std::unique_ptr<const UpdateRule> MakeLion(HyperparameterReader& read, Isa isa);

}  // namespace cairn::ps
