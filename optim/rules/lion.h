// Keras' Lion (Chen et al., arXiv:2302.06675, Algorithm 2).
#pragma once

#include <memory>

#include "optim/rules/hyperparameters.h"
#include "optim/rules/rule.h"
#include "optim/simd/isa.h"

namespace cairn::optim {

// Reads exactly its own hyperparameters from `read`, which records the errors.
std::unique_ptr<const UpdateRule> MakeLion(HyperparameterReader& read, Isa isa);

}  // namespace cairn::optim
