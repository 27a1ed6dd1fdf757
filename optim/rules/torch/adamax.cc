#include <algorithm>
#include <cmath>
#include <memory>

#include "optim/rules/torch/adam_constants.h"
#include "optim/rules/torch/torch_rules.h"
#include "optim/simd/loop.h"

namespace cairn::optim {
namespace {

constexpr absl::string_view kTorchAdamaxSlots[] = {"exp_avg", "exp_inf"};

class TorchAdamax final : public UpdateRule {
 public:
  TorchAdamax(const AdamConstants& constants, Isa isa) : constants_(constants), isa_(isa) {}

  absl::Span<const absl::string_view> slot_names() const override { return kTorchAdamaxSlots; }

  void Update(const UpdateStep& step, absl::Span<const float> old_values, absl::Span<const float> gradient,
              absl::Span<const Slot> slots, float* new_values) const override {
    const auto [m_old, m] = slots[0];
    const auto [u_old, u] = slots[1];
    const float alpha = static_cast<float>(step.learning_rate /
                                           (1 - std::pow(constants_.beta_1, static_cast<double>(step.t))));
    const float one_minus_beta_1 = static_cast<float>(1 - constants_.beta_1);
    const float beta_2 = static_cast<float>(constants_.beta_2);
    const float epsilon = static_cast<float>(constants_.epsilon);
    ForEachElement(isa_, old_values, gradient, [=](int64_t i, float w, float g) CAIRN_INLINE_LAMBDA {
      const float m_new = m_old[i] + (g - m_old[i]) * one_minus_beta_1;
      const float u_new = std::max(beta_2 * u_old[i], std::abs(g) + epsilon);
      m[i] = m_new;
      u[i] = u_new;
      new_values[i] = w - (m_new * alpha) / u_new;
    });
  }

 private:
  const AdamConstants constants_;
  const Isa isa_;
};

}  // namespace

std::unique_ptr<const UpdateRule> MakeTorchAdamax(HyperparameterReader& read, Isa isa) {
  return std::make_unique<TorchAdamax>(ReadTorchAdamConstants(read), isa);
}

}  // namespace cairn::optim
