#include <cmath>
#include <memory>

#include "optim/rules/torch/adam_constants.h"
#include "optim/rules/torch/torch_rules.h"
#include "optim/simd/loop.h"

namespace cairn::optim {
namespace {

constexpr absl::string_view kTorchRadamSlots[] = {"exp_avg", "exp_avg_sq"};

class TorchRadam final : public UpdateRule {
 public:
  TorchRadam(const AdamConstants& constants, Isa isa) : constants_(constants), isa_(isa) {}

  absl::Span<const absl::string_view> slot_names() const override { return kTorchRadamSlots; }

  void Update(const UpdateStep& step, absl::Span<const float> old_values, absl::Span<const float> gradient,
              absl::Span<const Slot> slots, float* new_values) const override {
    const auto [m_old, m] = slots[0];
    const auto [v_old, v] = slots[1];
    const double t = static_cast<double>(step.t);
    const double beta_2_power = std::pow(constants_.beta_2, t);
    const double rate = step.learning_rate / (1 - std::pow(constants_.beta_1, t));
    const float one_minus_beta_1 = static_cast<float>(1 - constants_.beta_1);
    const float one_minus_beta_2 = static_cast<float>(1 - constants_.beta_2);
    // The length of the approximated simple moving average: in the limit, and now.
    const double rho_limit = 2 / (1 - constants_.beta_2) - 1;
    const double rho = rho_limit - 2 * t * beta_2_power / (1 - beta_2_power);
    if (rho <= 5) {  // the variance is not tractable: no division by the root of v
      const float alpha = static_cast<float>(rate);
      ForEachElement(isa_, old_values, gradient, [=](int64_t i, float w, float g) CAIRN_INLINE_LAMBDA {
        const float m_new = m_old[i] + (g - m_old[i]) * one_minus_beta_1;
        m[i] = m_new;
        v[i] = v_old[i] + (g * g - v_old[i]) * one_minus_beta_2;
        new_values[i] = w - m_new * alpha;
      });
      return;
    }
    const double rectification =
        std::sqrt((rho - 4) * (rho - 2) * rho_limit / ((rho_limit - 4) * (rho_limit - 2) * rho));
    const float alpha = static_cast<float>(rate * rectification * std::sqrt(1 - beta_2_power));
    const float epsilon = static_cast<float>(constants_.epsilon);
    ForEachElement(isa_, old_values, gradient, [=](int64_t i, float w, float g) CAIRN_INLINE_LAMBDA {
      const float m_new = m_old[i] + (g - m_old[i]) * one_minus_beta_1;
      const float v_new = v_old[i] + (g * g - v_old[i]) * one_minus_beta_2;
      m[i] = m_new;
      v[i] = v_new;
      new_values[i] = w - (m_new * alpha) / (std::sqrt(v_new) + epsilon);
    });
  }

 private:
  const AdamConstants constants_;
  const Isa isa_;
};

}  // namespace

std::unique_ptr<const UpdateRule> MakeTorchRadam(HyperparameterReader& read, Isa isa) {
  return std::make_unique<TorchRadam>(ReadTorchAdamConstants(read), isa);
}

}  // namespace cairn::optim
