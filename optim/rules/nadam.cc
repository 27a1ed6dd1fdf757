#include "optim/rules/nadam.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

#include "optim/rules/adam.h"
#include "optim/simd/loop.h"

namespace cairn::optim {
namespace {

constexpr absl::string_view kNadamSlots[] = {"m", "v"};  // first and second moment, under Keras 2's names

// u_t is the momentum of update t, and the bias of m is 1 - u_1 u_2 ... u_t. Keras keeps the product
// u_1 u_2 ... u_t in a variable. Here it is a function of t, so it needs no state.
class Nadam final : public UpdateRule {
 public:
  Nadam(const NadamConstants& constants, absl::Span<const absl::string_view> slots, Isa isa)
      : constants_(constants.adam), momentum_decay_(constants.momentum_decay), slots_(slots), isa_(isa) {
    warmups_ = {1};
    for (int64_t t = 1; Warmup(t) < 1 && warmups_.back() > kNoBias; ++t) {
      warmups_.push_back(warmups_.back() * Warmup(t));
    }
  }

  absl::Span<const absl::string_view> slot_names() const override { return slots_; }

  void Update(const UpdateStep& step, absl::Span<const float> old_values, absl::Span<const float> gradient,
              absl::Span<const Slot> slots, float* new_values) const override {
    const auto [m_old, m] = slots[0];
    const auto [v_old, v] = slots[1];
    const double u_t = constants_.beta_1 * Warmup(step.t);
    const double u_next = constants_.beta_1 * Warmup(step.t + 1);
    const double product = MomentumProduct(step.t);
    const float of_m = static_cast<float>(u_next / (1 - product * u_next));
    const float of_g = static_cast<float>((1 - u_t) / (1 - product));
    const float of_v = static_cast<float>(1 / (1 - std::pow(constants_.beta_2, static_cast<double>(step.t))));
    const float lr = step.learning_rate;
    const float one_minus_beta_1 = static_cast<float>(1 - constants_.beta_1);
    const float one_minus_beta_2 = static_cast<float>(1 - constants_.beta_2);
    const float epsilon = static_cast<float>(constants_.epsilon);
    ForEachElement(isa_, old_values, gradient, [=](int64_t i, float w, float g) CAIRN_INLINE_LAMBDA {
      const float m_new = m_old[i] + (g - m_old[i]) * one_minus_beta_1;
      const float v_new = v_old[i] + (g * g - v_old[i]) * one_minus_beta_2;
      m[i] = m_new;
      v[i] = v_new;
      const float m_hat = of_m * m_new + of_g * g;
      new_values[i] = w - (m_hat * lr) / (std::sqrt(v_new * of_v) + epsilon);
    });
  }

 private:
  // 1 minus a smaller product is 1, in double.
  static constexpr double kNoBias = 0x1p-60;

  double Warmup(int64_t t) const {
    return 1 - 0.5 * std::pow(0.96, static_cast<double>(t) * momentum_decay_);
  }

  // u_1 u_2 ... u_t
  double MomentumProduct(int64_t t) const {
    const size_t known = std::min(static_cast<size_t>(t), warmups_.size() - 1);
    return warmups_[known] * std::pow(constants_.beta_1, static_cast<double>(t));
  }

  const AdamConstants constants_;
  const double momentum_decay_;
  const absl::Span<const absl::string_view> slots_;
  const Isa isa_;
  // [t]: the product of Warmup(1) to Warmup(t), as long as Warmup(t) differs from 1 in double and the product from 0:
  // about 900 for Keras, 60 for torch.
  std::vector<double> warmups_;
};

}  // namespace

std::unique_ptr<const UpdateRule> MakeNadam(HyperparameterReader& read, Isa isa) {
  return MakeNadamRule({.adam = ReadAdamConstants(read), .momentum_decay = 1}, kNadamSlots, isa);
}

std::unique_ptr<const UpdateRule> MakeNadamRule(const NadamConstants& constants,
                                                absl::Span<const absl::string_view> slots, Isa isa) {
  return std::make_unique<Nadam>(constants, slots, isa);
}

}  // namespace cairn::optim
