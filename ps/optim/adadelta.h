// Keras' Adadelta (Zeiler, arXiv:1212.5701, Algorithm 1, its step multiplied by the learning rate).
#pragma once

#include <memory>

#include "ps/optim/hyperparameters.h"
#include "ps/optim/isa.h"
#include "ps/optim/rule.h"

namespace cairn::ps {

// Takes its hyperparameters, and no others, from `read`, which keeps their faults.
std::unique_ptr<const UpdateRule> MakeAdadelta(HyperparameterReader& read, Isa isa);

}  // namespace cairn::ps
