// Keras' Lamb (You et al., ICLR 2020, Algorithm 2). Optimizer applies the weight decay, so the layer-wise
// direction and its norm do not include it.
#pragma once

#include <memory>

#include "ps/optim/hyperparameters.h"
#include "ps/optim/isa.h"
#include "ps/optim/rule.h"

namespace cairn::ps {

// Reads exactly its own hyperparameters from `read`, which records the errors.
std::unique_ptr<const UpdateRule> MakeLamb(HyperparameterReader& read, Isa isa);

}  // namespace cairn::ps
