// Keras' Adamax (Kingma and Ba, ICLR 2015, section 7.1).
#pragma once

#include <memory>

#include "ps/optim/hyperparameters.h"
#include "ps/optim/isa.h"
#include "ps/optim/rule.h"

namespace cairn::ps {

// Reads exactly its own hyperparameters from `read`, which records the errors.
std::unique_ptr<const UpdateRule> MakeAdamax(HyperparameterReader& read, Isa isa);

}  // namespace cairn::ps
