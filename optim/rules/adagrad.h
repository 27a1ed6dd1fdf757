// Keras' Adagrad (Duchi, Hazan and Singer, JMLR 12, 2011).
#pragma once

#include <memory>

#include "optim/rules/hyperparameters.h"
#include "optim/rules/rule.h"
#include "optim/simd/isa.h"

namespace cairn::optim {

// Reads exactly its own hyperparameters from `read`, which records the errors.
std::unique_ptr<const UpdateRule> MakeAdagrad(HyperparameterReader& read, Isa isa);

}  // namespace cairn::optim
