// Keras' Adadelta (Zeiler, arXiv:1212.5701, Algorithm 1, with its step multiplied by the learning rate).
#pragma once

#include <memory>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "optim/rules/hyperparameters.h"
#include "optim/rules/rule.h"
#include "optim/simd/isa.h"

namespace cairn::optim {

// Reads exactly its own hyperparameters from `read`, which records the errors.
std::unique_ptr<const UpdateRule> MakeAdadelta(HyperparameterReader& read, Isa isa);

struct AdadeltaConstants {
  double rho, epsilon;
};
// `slots`: the names of the averages of squared gradients and of squared steps. They must outlive the rule.
std::unique_ptr<const UpdateRule> MakeAdadeltaRule(const AdadeltaConstants& constants,
                                                   absl::Span<const absl::string_view> slots, Isa isa);

}  // namespace cairn::optim
