#include <cmath>
#include <memory>

#include "optim/rules/torch/torch_rules.h"
#include "optim/simd/loop.h"

namespace cairn::optim {
namespace {

constexpr absl::string_view kTorchAdagradSlots[] = {"sum"};

struct TorchAdagradConstants {
  double lr_decay, initial_accumulator, epsilon;
};

class TorchAdagrad final : public UpdateRule {
 public:
  TorchAdagrad(const TorchAdagradConstants& constants, Isa isa) : constants_(constants), isa_(isa) {}

  absl::Span<const absl::string_view> slot_names() const override { return kTorchAdagradSlots; }
  float initial_slot_value(int) const override { return static_cast<float>(constants_.initial_accumulator); }

  void Update(const UpdateStep& step, absl::Span<const float> old_values, absl::Span<const float> gradient,
              absl::Span<const Slot> slots, float* new_values) const override {
    const auto [sum_old, sum] = slots[0];
    const float lr =
        static_cast<float>(step.learning_rate / (1 + static_cast<double>(step.t - 1) * constants_.lr_decay));
    const float epsilon = static_cast<float>(constants_.epsilon);
    ForEachElement(isa_, old_values, gradient, [=](int64_t i, float w, float g) CAIRN_INLINE_LAMBDA {
      const float sum_new = sum_old[i] + g * g;
      sum[i] = sum_new;
      new_values[i] = w - (lr * g) / (std::sqrt(sum_new) + epsilon);
    });
  }

 private:
  const TorchAdagradConstants constants_;
  const Isa isa_;
};

}  // namespace

std::unique_ptr<const UpdateRule> MakeTorchAdagrad(HyperparameterReader& read, Isa isa) {
  TorchAdagradConstants constants;
  constants.lr_decay = read.Take("lr_decay", 0, Domain::kNonNegative);
  constants.initial_accumulator = read.Take("initial_accumulator_value", 0, Domain::kNonNegative);
  constants.epsilon = read.Take("eps", 1e-10, Domain::kNonNegative);
  return std::make_unique<TorchAdagrad>(constants, isa);
}

}  // namespace cairn::optim
