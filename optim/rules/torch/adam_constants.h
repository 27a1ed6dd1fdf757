// The constants that torch's Adam and its relatives have in common.
#pragma once

#include "optim/rules/adam.h"
#include "optim/rules/hyperparameters.h"

namespace cairn::optim {

// torch's `betas`, as beta1 and beta2, and `eps`.
inline AdamConstants ReadTorchAdamConstants(HyperparameterReader& read) {
  AdamConstants constants;
  constants.beta_1 = read.Take("beta1", 0.9, Domain::kBelowOne);
  constants.beta_2 = read.Take("beta2", 0.999, Domain::kBelowOne);
  constants.epsilon = read.Take("eps", 1e-8, Domain::kNonNegative);
  return constants;
}

}  // namespace cairn::optim
