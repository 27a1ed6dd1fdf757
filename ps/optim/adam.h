// Keras' Adam (Kingma and Ba, ICLR 2015, end of section 2: epsilon outside the bias correction), with AMSGrad
// (Reddi, Kale and Kumar, ICLR 2018) as an option. AdamW is the same rule: its decay is Optimizer's.
#pragma once

#include <memory>

#include "ps/optim/hyperparameters.h"
#include "ps/optim/isa.h"
#include "ps/optim/rule.h"

namespace cairn::ps {

// Of Adam and its relatives. In double, since 1 - beta is what the loops need.
struct AdamConstants {
  double beta_1, beta_2, epsilon;
};
AdamConstants ReadAdamConstants(HyperparameterReader& read);

// Takes its hyperparameters, and no others, from `read`, which keeps their faults.
std::unique_ptr<const UpdateRule> MakeAdam(HyperparameterReader& read, Isa isa);

}  // namespace cairn::ps
