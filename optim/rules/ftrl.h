// Keras' Ftrl (McMahan et al., "Ad Click Prediction: a View from the Trenches", KDD 2013, Algorithm 1), with
// shrinkage-type L2 and a free power of the learning rate.
#pragma once

#include <memory>

#include "optim/rules/hyperparameters.h"
#include "optim/rules/rule.h"
#include "optim/simd/isa.h"

namespace cairn::optim {

// Reads exactly its own hyperparameters from `read`, which records the errors.
std::unique_ptr<const UpdateRule> MakeFtrl(HyperparameterReader& read, Isa isa);

}  // namespace cairn::optim
