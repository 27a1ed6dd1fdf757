#include "optim/rules/adagrad.h"

#include <cmath>

#include "optim/simd/loop.h"

namespace cairn::optim {
namespace {

constexpr absl::string_view kAdagradSlots[] = {"accumulator"};

// Epsilon is inside the root, as in Keras; TensorFlow 1 has no epsilon.
class Adagrad final : public UpdateRule {
 public:
  Adagrad(float initial_accumulator, float epsilon, Isa isa)
      : initial_accumulator_(initial_accumulator), epsilon_(epsilon), isa_(isa) {}

  absl::Span<const absl::string_view> slot_names() const override { return kAdagradSlots; }
  float initial_slot_value(int) const override { return initial_accumulator_; }

  void Update(const UpdateStep& step, absl::Span<const float> old_values, absl::Span<const float> gradient,
              absl::Span<const Slot> slots, float* new_values) const override {
    const auto [accumulator_old, accumulator] = slots[0];
    const float lr = step.learning_rate;
    const float epsilon = epsilon_;
    ForEachElement(isa_, old_values, gradient, [=](int64_t i, float w, float g) CAIRN_INLINE_LAMBDA {
      const float sum = accumulator_old[i] + g * g;
      accumulator[i] = sum;
      new_values[i] = w - (lr * g) / std::sqrt(sum + epsilon);
    });
  }

 private:
  const float initial_accumulator_;
  const float epsilon_;
  const Isa isa_;
};

}  // namespace

std::unique_ptr<const UpdateRule> MakeAdagrad(HyperparameterReader& read, Isa isa) {
  const double initial_accumulator = read.Take("initial_accumulator_value", 0.1, Domain::kNonNegative);
  const double epsilon = read.Take("epsilon", 1e-7, Domain::kPositive);
  return std::make_unique<Adagrad>(static_cast<float>(initial_accumulator), static_cast<float>(epsilon), isa);
}

}  // namespace cairn::optim
