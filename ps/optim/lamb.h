// Keras' Lamb (You et al., ICLR 2020, Algorithm 2; its decay is Optimizer's, and so outside the layer-wise
// norm).
#pragma once

#include <memory>

#include "ps/optim/hyperparameters.h"
#include "ps/optim/isa.h"
#include "ps/optim/rule.h"

namespace cairn::ps {

// Takes its hyperparameters, and no others, from `read`, which keeps their faults.
std::unique_ptr<const UpdateRule> MakeLamb(HyperparameterReader& read, Isa isa);

}  // namespace cairn::ps
