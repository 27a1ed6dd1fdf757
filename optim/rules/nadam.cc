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

// The momentum of update t is u_t = beta_1 (1 - 0.96^t / 2), and the bias of m is 1 - u_1 u_2 ... u_t. Keras
// keeps the product u_1 u_2 ... u_t in a variable. Here it is a function of t, so it needs no state.
class Nadam final : public UpdateRule {
 public:
  Nadam(const AdamConstants& constants, Isa isa) : constants_(constants), isa_(isa) {
    warmups_ = {1};
    for (int64_t t = 1; Warmup(t) < 1; ++t) warmups_.push_back(warmups_.back() * Warmup(t));
  }

  absl::Span<const absl::string_view> slot_names() const override { return kNadamSlots; }

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
  static double Warmup(int64_t t) { return 1 - 0.5 * std::pow(0.96, static_cast<double>(t)); }

  // u_1 u_2 ... u_t
  double MomentumProduct(int64_t t) const {
    const size_t known = std::min(static_cast<size_t>(t), warmups_.size() - 1);
    return warmups_[known] * std::pow(constants_.beta_1, static_cast<double>(t));
  }

  const AdamConstants constants_;
  const Isa isa_;
  // [t]: the product of Warmup(1) to Warmup(t), for all t at which Warmup(t) differs from 1 in double:
  // about 900.
  std::vector<double> warmups_;
};

}  // namespace

std::unique_ptr<const UpdateRule> MakeNadam(HyperparameterReader& read, Isa isa) {
  return std::make_unique<Nadam>(ReadAdamConstants(read), isa);
}

}  // namespace cairn::optim
