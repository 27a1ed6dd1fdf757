// Keras' Adamax (Kingma and Ba, ICLR 2015, section 7.1).
#pragma once

#include <memory>

#include "ps/optim/hyperparameters.h"
#include "ps/optim/isa.h"
#include "ps/optim/rule.h"

namespace cairn::ps {

// Takes its hyperparameters, and no others, from `read`, which keeps their faults.
std::unique_ptr<const UpdateRule> MakeAdamax(HyperparameterReader& read, Isa isa);

}  // namespace cairn::ps
