// Keras' Lamb (You et al., ICLR 2020, Algorithm 2). Optimizer applies the weight decay, so the layer-wise
// direction and its norm do not include it.
#pragma once

#include <memory>

#include "optim/rules/hyperparameters.h"
#include "optim/rules/rule.h"
#include "optim/simd/isa.h"

namespace cairn::optim {

// Reads exactly its own hyperparameters from `read`, which records the errors.
std::unique_ptr<const UpdateRule> MakeLamb(HyperparameterReader& read, Isa isa);

}  // namespace cairn::optim
