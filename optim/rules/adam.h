// Keras' Adam (Kingma and Ba, ICLR 2015, end of section 2: epsilon outside the bias correction), with AMSGrad
// (Reddi, Kale and Kumar, ICLR 2018) as an option. AdamW is the same rule: Optimizer applies its weight
// decay.
#pragma once

#include <memory>

#include "optim/rules/hyperparameters.h"
#include "optim/rules/rule.h"
#include "optim/simd/isa.h"

namespace cairn::optim {

// The constants of Adam and its relatives. In double, because the loops need 1 - beta.
struct AdamConstants {
  double beta_1, beta_2, epsilon;
};
AdamConstants ReadAdamConstants(HyperparameterReader& read);

// Reads exactly its own hyperparameters from `read`, which records the errors.
std::unique_ptr<const UpdateRule> MakeAdam(HyperparameterReader& read, Isa isa);

}  // namespace cairn::optim
