// Keras' Adam (Kingma and Ba, ICLR 2015, end of section 2: epsilon outside the bias correction), with AMSGrad
// (Reddi, Kale and Kumar, ICLR 2018) as an option. AdamW is the same rule: Optimizer applies its weight
// decay.
#pragma once

#include <memory>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "optim/rules/hyperparameters.h"
#include "optim/rules/rule.h"
#include "optim/simd/isa.h"

namespace cairn::optim {

// The constants of Adam and its relatives. In double, because the loops need 1 - beta.
struct AdamConstants {
  double beta_1, beta_2, epsilon;
  // Adam alone: epsilon is added to the root of the bias-corrected second moment, as in the paper's Algorithm 1 and in
  // torch, and not to that of the moment itself.
  bool epsilon_after_correction = false;
};
AdamConstants ReadAdamConstants(HyperparameterReader& read);

// Reads exactly its own hyperparameters from `read`, which records the errors.
std::unique_ptr<const UpdateRule> MakeAdam(HyperparameterReader& read, Isa isa);
// `slots`: the names of the first and the second moment and, for AMSGrad, of the largest second moment so far. They
// must outlive the rule.
std::unique_ptr<const UpdateRule> MakeAdamRule(const AdamConstants& constants,
                                               absl::Span<const absl::string_view> slots, Isa isa);

}  // namespace cairn::optim
