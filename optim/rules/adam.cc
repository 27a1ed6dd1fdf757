#include "optim/rules/adam.h"

#include <algorithm>
#include <cmath>

#include "optim/simd/loop.h"

namespace cairn::optim {
namespace {

// First and second moment, under Keras 2's names; with AMSGrad also the largest second moment so far.
constexpr absl::string_view kAdamSlots[] = {"m", "v", "vhat"};

class Adam final : public UpdateRule {
 public:
  Adam(const AdamConstants& constants, absl::Span<const absl::string_view> slots, Isa isa)
      : constants_(constants), slots_(slots), isa_(isa) {}

  absl::Span<const absl::string_view> slot_names() const override { return slots_; }

  void Update(const UpdateStep& step, absl::Span<const float> old_values, absl::Span<const float> gradient,
              absl::Span<const Slot> slots, float* new_values) const override {
    const auto [m_old, m] = slots[0];
    const auto [v_old, v] = slots[1];
    // Keras computes alpha in float, where 1 - beta_2^t loses three digits at t = 1. Here it is rounded once.
    const double t = static_cast<double>(step.t);
    const double root_of_bias = std::sqrt(1 - std::pow(constants_.beta_2, t));
    const float alpha =
        static_cast<float>(step.learning_rate * root_of_bias / (1 - std::pow(constants_.beta_1, t)));
    const float one_minus_beta_1 = static_cast<float>(1 - constants_.beta_1);
    const float one_minus_beta_2 = static_cast<float>(1 - constants_.beta_2);
    // 1 / (sqrt(v) / root + epsilon) = root / (sqrt(v) + epsilon * root)
    const float epsilon =
        static_cast<float>(constants_.epsilon * (constants_.epsilon_after_correction ? root_of_bias : 1));
    if (slots_.size() == 2) {
      ForEachElement(isa_, old_values, gradient, [=](int64_t i, float w, float g) CAIRN_INLINE_LAMBDA {
        const float m_new = m_old[i] + (g - m_old[i]) * one_minus_beta_1;
        const float v_new = v_old[i] + (g * g - v_old[i]) * one_minus_beta_2;
        m[i] = m_new;
        v[i] = v_new;
        new_values[i] = w - (m_new * alpha) / (std::sqrt(v_new) + epsilon);
      });
      return;
    }
    const auto [v_hat_old, v_hat] = slots[2];
    ForEachElement(isa_, old_values, gradient, [=](int64_t i, float w, float g) CAIRN_INLINE_LAMBDA {
      const float m_new = m_old[i] + (g - m_old[i]) * one_minus_beta_1;
      const float v_new = v_old[i] + (g * g - v_old[i]) * one_minus_beta_2;
      const float largest = std::max(v_hat_old[i], v_new);
      m[i] = m_new;
      v[i] = v_new;
      v_hat[i] = largest;
      new_values[i] = w - (m_new * alpha) / (std::sqrt(largest) + epsilon);
    });
  }

 private:
  const AdamConstants constants_;
  const absl::Span<const absl::string_view> slots_;
  const Isa isa_;
};

}  // namespace

AdamConstants ReadAdamConstants(HyperparameterReader& read) {
  AdamConstants constants;
  constants.beta_1 = read.Take("beta_1", 0.9, Domain::kBelowOne);
  constants.beta_2 = read.Take("beta_2", 0.999, Domain::kBelowOne);
  constants.epsilon = read.Take("epsilon", 1e-7, Domain::kPositive);
  return constants;
}

std::unique_ptr<const UpdateRule> MakeAdam(HyperparameterReader& read, Isa isa) {
  const AdamConstants constants = ReadAdamConstants(read);
  const bool amsgrad = read.Take("amsgrad", 0, Domain::kFlag) != 0;
  return MakeAdamRule(constants, absl::MakeConstSpan(kAdamSlots, amsgrad ? 3 : 2), isa);
}

std::unique_ptr<const UpdateRule> MakeAdamRule(const AdamConstants& constants,
                                               absl::Span<const absl::string_view> slots, Isa isa) {
  return std::make_unique<Adam>(constants, slots, isa);
}

}  // namespace cairn::optim
