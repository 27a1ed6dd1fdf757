#include "optim/rules/nadam.h"

#include <memory>

#include "optim/rules/torch/adam_constants.h"
#include "optim/rules/torch/torch_rules.h"

namespace cairn::optim {
namespace {

constexpr absl::string_view kTorchNadamSlots[] = {"exp_avg", "exp_avg_sq"};

}  // namespace

// Keras' arithmetic, with a momentum that rises more slowly.
std::unique_ptr<const UpdateRule> MakeTorchNadam(HyperparameterReader& read, Isa isa) {
  const AdamConstants constants = ReadTorchAdamConstants(read);
  const double momentum_decay = read.Take("momentum_decay", 4e-3, Domain::kNonNegative);
  return MakeNadamRule({.adam = constants, .momentum_decay = momentum_decay}, kTorchNadamSlots, isa);
}

}  // namespace cairn::optim
