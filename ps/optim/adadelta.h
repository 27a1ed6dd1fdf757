// Keras' Adadelta (Zeiler, arXiv:1212.5701, Algorithm 1, with its step multiplied by the learning rate).
#pragma once

#include <memory>

#include "ps/optim/hyperparameters.h"
#include "ps/optim/isa.h"
#include "ps/optim/rule.h"

namespace cairn::ps {

// Reads exactly its own hyperparameters from `read`, which records the errors.
std::unique_ptr<const UpdateRule> MakeAdadelta(HyperparameterReader& read, Isa isa);

}  // namespace cairn::ps
