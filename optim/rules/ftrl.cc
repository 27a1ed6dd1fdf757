#include "optim/rules/ftrl.h"

#include <algorithm>
#include <cmath>

#include "optim/simd/loop.h"

namespace cairn::optim {
namespace {

constexpr absl::string_view kFtrlSlots[] = {"accumulator", "linear"};

struct FtrlConstants {
  double learning_rate_power, initial_accumulator, l1, l2, l2_shrinkage, beta;
};

class Ftrl final : public UpdateRule {
 public:
  Ftrl(const FtrlConstants& constants, Isa isa) : constants_(constants), isa_(isa) {}

  absl::Span<const absl::string_view> slot_names() const override { return kFtrlSlots; }
  float initial_slot_value(int slot) const override {
    return slot == 0 ? static_cast<float>(constants_.initial_accumulator) : 0;
  }

  void Update(const UpdateStep& step, absl::Span<const float> old_values, absl::Span<const float> gradient,
              absl::Span<const Slot> slots, float* new_values) const override {
    if (step.learning_rate == 0) {  // the rule divides by it; a schedule may end at 0
      std::copy(old_values.begin(), old_values.end(), new_values);
      for (const Slot& slot : slots) {
        if (slot.to != slot.from) std::copy_n(slot.from, old_values.size(), slot.to);
      }
      return;
    }
    if (constants_.learning_rate_power == -0.5) {
      const auto root = [](float x) CAIRN_INLINE_LAMBDA { return std::sqrt(x); };
      UpdateWith(root, step.learning_rate, old_values, gradient, slots, new_values);
      return;
    }
    // In double: differences in the last bit of the C library's pow vanish in the rounding to float.
    const double power = -constants_.learning_rate_power;
    const auto raise = [power](float x) CAIRN_INLINE_LAMBDA {
      return static_cast<float>(std::pow(static_cast<double>(x), power));
    };
    UpdateWith(raise, step.learning_rate, old_values, gradient, slots, new_values);
  }

 private:
  // `power` computes x^-learning_rate_power.
  template <typename Power>
  void UpdateWith(Power power, float lr, absl::Span<const float> old_values, absl::Span<const float> gradient,
                  absl::Span<const Slot> slots, float* new_values) const {
    const auto [accumulator_old, accumulator] = slots[0];
    const auto [linear_old, linear] = slots[1];
    const float l1 = static_cast<float>(constants_.l1);
    const float shrinkage = static_cast<float>(2 * constants_.l2_shrinkage);
    const float beta = static_cast<float>(constants_.beta);
    const float twice_l2 = static_cast<float>(2 * constants_.l2);
    ForEachElement(isa_, old_values, gradient, [=](int64_t i, float w, float g) CAIRN_INLINE_LAMBDA {
      const float sum = accumulator_old[i] + g * g;
      const float power_of_sum = power(sum);
      const float sigma = (power_of_sum - power(accumulator_old[i])) / lr;
      const float z = linear_old[i] + (g + shrinkage * w) - sigma * w;
      accumulator[i] = sum;
      linear[i] = z;
      const float clipped = std::min(std::max(z, -l1), l1);
      new_values[i] = (clipped - z) / ((power_of_sum + beta) / lr + twice_l2);
    });
  }

  const FtrlConstants constants_;
  const Isa isa_;
};

}  // namespace

std::unique_ptr<const UpdateRule> MakeFtrl(HyperparameterReader& read, Isa isa) {
  FtrlConstants constants;
  constants.learning_rate_power = read.Take("learning_rate_power", -0.5, Domain::kNonPositive);
  constants.initial_accumulator = read.Take("initial_accumulator_value", 0.1, Domain::kNonNegative);
  constants.l1 = read.Take("l1_regularization_strength", 0, Domain::kNonNegative);
  constants.l2 = read.Take("l2_regularization_strength", 0, Domain::kNonNegative);
  constants.l2_shrinkage = read.Take("l2_shrinkage_regularization_strength", 0, Domain::kNonNegative);
  constants.beta = read.Take("beta", 0, Domain::kNonNegative);
  return std::make_unique<Ftrl>(constants, isa);
}

}  // namespace cairn::optim
