// PyTorch's rules (torch/optim/*.py, version 2.14: the functions _single_tensor_*), with its hyperparameters and names
// of slots. Optimizer applies what they have in common: `maximize`, and the weight decay, which torch adds to the
// gradient (coupled) or takes from the values (decoupled).
//
// Each function reads exactly its own hyperparameters from `read`, which records the errors.
#pragma once

#include <memory>

#include "optim/rules/hyperparameters.h"
#include "optim/rules/rule.h"
#include "optim/simd/isa.h"

namespace cairn::optim {

// The learning rate multiplies the buffer, and not each gradient as in Keras. The first gradient is not dampened.
std::unique_ptr<const UpdateRule> MakeTorchSgd(HyperparameterReader& read, Isa isa);
// Also AdamW. Epsilon is added to the root of the corrected second moment.
std::unique_ptr<const UpdateRule> MakeTorchAdam(HyperparameterReader& read, Isa isa);
// Epsilon is outside the root, as in Adagrad.
std::unique_ptr<const UpdateRule> MakeTorchRmsprop(HyperparameterReader& read, Isa isa);
std::unique_ptr<const UpdateRule> MakeTorchAdagrad(HyperparameterReader& read, Isa isa);
std::unique_ptr<const UpdateRule> MakeTorchAdadelta(HyperparameterReader& read, Isa isa);
// Epsilon is a part of the infinity norm.
std::unique_ptr<const UpdateRule> MakeTorchAdamax(HyperparameterReader& read, Isa isa);
// The product of the momenta is a function of t and of the present beta1: torch multiplies those of each update.
std::unique_ptr<const UpdateRule> MakeTorchNadam(HyperparameterReader& read, Isa isa);
// Liu et al., On the Variance of the Adaptive Learning Rate and Beyond, ICLR 2020, with an epsilon.
std::unique_ptr<const UpdateRule> MakeTorchRadam(HyperparameterReader& read, Isa isa);

}  // namespace cairn::optim
