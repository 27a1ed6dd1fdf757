#include "optim/rules/adadelta.h"

#include <cmath>

#include "optim/simd/loop.h"

namespace cairn::optim {
namespace {

// Moving averages of the squared gradients, and of the squared steps before the multiplication by the
// learning rate.
constexpr absl::string_view kAdadeltaSlots[] = {"accumulated_grad", "accumulated_delta_var"};

class Adadelta final : public UpdateRule {
 public:
  Adadelta(const AdadeltaConstants& constants, absl::Span<const absl::string_view> slots, Isa isa)
      : constants_(constants), slots_(slots), isa_(isa) {}

  absl::Span<const absl::string_view> slot_names() const override { return slots_; }

  void Update(const UpdateStep& step, absl::Span<const float> old_values, absl::Span<const float> gradient,
              absl::Span<const Slot> slots, float* new_values) const override {
    const auto [gradients_old, gradients] = slots[0];
    const auto [deltas_old, deltas] = slots[1];
    const float lr = step.learning_rate;
    const float rho = static_cast<float>(constants_.rho);
    const float one_minus_rho = static_cast<float>(1 - constants_.rho);
    const float epsilon = static_cast<float>(constants_.epsilon);
    ForEachElement(isa_, old_values, gradient, [=](int64_t i, float w, float g) CAIRN_INLINE_LAMBDA {
      const float gradients_new = rho * gradients_old[i] + one_minus_rho * (g * g);
      const float delta = std::sqrt(deltas_old[i] + epsilon) * g / std::sqrt(gradients_new + epsilon);
      gradients[i] = gradients_new;
      deltas[i] = rho * deltas_old[i] + one_minus_rho * (delta * delta);
      new_values[i] = w - lr * delta;
    });
  }

 private:
  const AdadeltaConstants constants_;
  const absl::Span<const absl::string_view> slots_;
  const Isa isa_;
};

}  // namespace

std::unique_ptr<const UpdateRule> MakeAdadelta(HyperparameterReader& read, Isa isa) {
  const double rho = read.Take("rho", 0.95, Domain::kUnit);
  const double epsilon = read.Take("epsilon", 1e-7, Domain::kPositive);
  return MakeAdadeltaRule({.rho = rho, .epsilon = epsilon}, kAdadeltaSlots, isa);
}

std::unique_ptr<const UpdateRule> MakeAdadeltaRule(const AdadeltaConstants& constants,
                                                   absl::Span<const absl::string_view> slots, Isa isa) {
  return std::make_unique<Adadelta>(constants, slots, isa);
}

}  // namespace cairn::optim
