// Keras' Adagrad (Duchi, Hazan and Singer, JMLR 12, 2011).
#pragma once

#include <memory>

#include "ps/optim/hyperparameters.h"
#include "ps/optim/isa.h"
#include "ps/optim/rule.h"

namespace cairn::ps {

// Takes its hyperparameters, and no others, from `read`, which keeps their faults.
std::unique_ptr<const UpdateRule> MakeAdagrad(HyperparameterReader& read, Isa isa);

}  // namespace cairn::ps
