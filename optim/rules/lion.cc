#include "optim/rules/lion.h"

#include "optim/simd/loop.h"

namespace cairn::optim {
namespace {

constexpr absl::string_view kLionSlots[] = {"momentum"};

class Lion final : public UpdateRule {
 public:
  Lion(double beta_1, double beta_2, Isa isa) : beta_1_(beta_1), beta_2_(beta_2), isa_(isa) {}

  absl::Span<const absl::string_view> slot_names() const override { return kLionSlots; }

  void Update(const UpdateStep& step, absl::Span<const float> old_values, absl::Span<const float> gradient,
              absl::Span<const Slot> slots, float* new_values) const override {
    const auto [m_old, m] = slots[0];
    const float lr = step.learning_rate;
    const float beta_1 = static_cast<float>(beta_1_), one_minus_beta_1 = static_cast<float>(1 - beta_1_);
    const float beta_2 = static_cast<float>(beta_2_), one_minus_beta_2 = static_cast<float>(1 - beta_2_);
    ForEachElement(isa_, old_values, gradient, [=](int64_t i, float w, float g) CAIRN_INLINE_LAMBDA {
      const float direction = m_old[i] * beta_1 + g * one_minus_beta_1;
      const float rise = direction > 0 ? lr : 0.0f;
      const float fall = direction < 0 ? lr : 0.0f;
      m[i] = m_old[i] * beta_2 + g * one_minus_beta_2;
      new_values[i] = w - (rise - fall);
    });
  }

 private:
  const double beta_1_;
  const double beta_2_;
  const Isa isa_;
};

}  // namespace

std::unique_ptr<const UpdateRule> MakeLion(HyperparameterReader& read, Isa isa) {
  // With beta_1 = 0 only the gradient's sign would remain; Keras refuses it too.
  const double beta_1 = read.Take("beta_1", 0.9, Domain::kPositiveUnit);
  const double beta_2 = read.Take("beta_2", 0.99, Domain::kUnit);
  return std::make_unique<Lion>(beta_1, beta_2, isa);
}

}  // namespace cairn::optim
