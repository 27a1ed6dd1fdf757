// Keras' RMSprop (Tieleman and Hinton, Coursera lecture 6.5, 2012), with momentum or centered (Graves,
// arXiv:1308.0850, section 4.2) as options.
#pragma once

#include <memory>

#include "optim/rules/hyperparameters.h"
#include "optim/rules/rule.h"
#include "optim/simd/isa.h"

namespace cairn::optim {

// Reads exactly its own hyperparameters from `read`, which records the errors.
std::unique_ptr<const UpdateRule> MakeRmsprop(HyperparameterReader& read, Isa isa);

}  // namespace cairn::optim
