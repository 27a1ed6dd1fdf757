#include "optim/rules/lamb.h"

#include <cmath>

#include "optim/rules/adam.h"
#include "optim/simd/loop.h"

namespace cairn::optim {
namespace {

constexpr absl::string_view kLambSlots[] = {"m", "v"};  // first and second moment, under Keras 2's names

class Lamb final : public UpdateRule {
 public:
  Lamb(const AdamConstants& constants, Isa isa) : constants_(constants), isa_(isa) {}

  absl::Span<const absl::string_view> slot_names() const override { return kLambSlots; }
  bool layerwise() const override { return true; }

  // Adam's direction, with epsilon outside the root of the corrected moment, as in the paper.
  void Update(const UpdateStep& step, absl::Span<const float> old_values, absl::Span<const float> gradient,
              absl::Span<const Slot> slots, float* direction) const override {
    const auto [m_old, m] = slots[0];
    const auto [v_old, v] = slots[1];
    const double t = static_cast<double>(step.t);
    const float of_m = static_cast<float>(1 / (1 - std::pow(constants_.beta_1, t)));
    const float of_v = static_cast<float>(1 / (1 - std::pow(constants_.beta_2, t)));
    const float one_minus_beta_1 = static_cast<float>(1 - constants_.beta_1);
    const float one_minus_beta_2 = static_cast<float>(1 - constants_.beta_2);
    const float epsilon = static_cast<float>(constants_.epsilon);
    ForEachElement(isa_, old_values, gradient, [=](int64_t i, float /*w*/, float g) CAIRN_INLINE_LAMBDA {
      const float m_new = m_old[i] + (g - m_old[i]) * one_minus_beta_1;
      const float v_new = v_old[i] + (g * g - v_old[i]) * one_minus_beta_2;
      m[i] = m_new;
      v[i] = v_new;
      direction[i] = (m_new * of_m) / (std::sqrt(v_new * of_v) + epsilon);
    });
  }

 private:
  const AdamConstants constants_;
  const Isa isa_;
};

}  // namespace

std::unique_ptr<const UpdateRule> MakeLamb(HyperparameterReader& read, Isa isa) {
  return std::make_unique<Lamb>(ReadAdamConstants(read), isa);
}

}  // namespace cairn::optim
