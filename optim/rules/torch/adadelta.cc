#include "optim/rules/adadelta.h"

#include <memory>

#include "optim/rules/torch/torch_rules.h"

namespace cairn::optim {
namespace {

constexpr absl::string_view kTorchAdadeltaSlots[] = {"square_avg", "acc_delta"};

}  // namespace

// Keras' arithmetic.
std::unique_ptr<const UpdateRule> MakeTorchAdadelta(HyperparameterReader& read, Isa isa) {
  const double rho = read.Take("rho", 0.9, Domain::kUnit);
  const double epsilon = read.Take("eps", 1e-6, Domain::kNonNegative);
  return MakeAdadeltaRule({.rho = rho, .epsilon = epsilon}, kTorchAdadeltaSlots, isa);
}

}  // namespace cairn::optim
