// Keras' Adamax (Kingma and Ba, ICLR 2015, section 7.1).
#pragma once

#include <memory>

#include "optim/rules/hyperparameters.h"
#include "optim/rules/rule.h"
#include "optim/simd/isa.h"

namespace cairn::optim {

// Reads exactly its own hyperparameters from `read`, which records the errors.
std::unique_ptr<const UpdateRule> MakeAdamax(HyperparameterReader& read, Isa isa);

}  // namespace cairn::optim
