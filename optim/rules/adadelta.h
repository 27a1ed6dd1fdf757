// Keras' Adadelta (Zeiler, arXiv:1212.5701, Algorithm 1, with its step multiplied by the learning rate).
#pragma once

#include <memory>

#include "optim/rules/hyperparameters.h"
#include "optim/rules/rule.h"
#include "optim/simd/isa.h"

namespace cairn::optim {

// Reads exactly its own hyperparameters from `read`, which records the errors.
std::unique_ptr<const UpdateRule> MakeAdadelta(HyperparameterReader& read, Isa isa);

}  // namespace cairn::optim
