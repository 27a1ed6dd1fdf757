// Keras' Nadam (Dozat, "Incorporating Nesterov Momentum into Adam", ICLR workshop 2016).
#pragma once

#include <memory>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "optim/rules/adam.h"
#include "optim/rules/hyperparameters.h"
#include "optim/rules/rule.h"
#include "optim/simd/isa.h"

namespace cairn::optim {

// Reads exactly its own hyperparameters from `read`, which records the errors.
std::unique_ptr<const UpdateRule> MakeNadam(HyperparameterReader& read, Isa isa);

struct NadamConstants {
  AdamConstants adam;
  double momentum_decay;  // the momentum of update t is beta_1 (1 - 0.96^(t momentum_decay) / 2)
};
// `slots`: the names of the first and the second moment. They must outlive the rule.
std::unique_ptr<const UpdateRule> MakeNadamRule(const NadamConstants& constants,
                                                absl::Span<const absl::string_view> slots, Isa isa);

}  // namespace cairn::optim
