#include "optim/rules/adam.h"

#include <memory>

#include "optim/rules/torch/adam_constants.h"
#include "optim/rules/torch/torch_rules.h"

namespace cairn::optim {
namespace {

constexpr absl::string_view kTorchAdamSlots[] = {"exp_avg", "exp_avg_sq", "max_exp_avg_sq"};

}  // namespace

std::unique_ptr<const UpdateRule> MakeTorchAdam(HyperparameterReader& read, Isa isa) {
  AdamConstants constants = ReadTorchAdamConstants(read);
  constants.epsilon_after_correction = true;
  const bool amsgrad = read.Take("amsgrad", 0, Domain::kFlag) != 0;
  return MakeAdamRule(constants, absl::MakeConstSpan(kTorchAdamSlots, amsgrad ? 3 : 2), isa);
}

}  // namespace cairn::optim
