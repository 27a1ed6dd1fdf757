#include "optim/rules/sgd.h"

#include "optim/simd/loop.h"

namespace cairn::optim {
namespace {

constexpr absl::string_view kSgdSlots[] = {"momentum"};

// Keras keeps -learning_rate * gradient in the momentum. TensorFlow 1 keeps the gradient and multiplies it by
// the rate on use. The two agree as long as the rate is constant.
class Sgd final : public UpdateRule {
 public:
  Sgd(float momentum, bool nesterov, Isa isa) : momentum_(momentum), nesterov_(nesterov), isa_(isa) {}

  absl::Span<const absl::string_view> slot_names() const override {
    return momentum_ == 0 ? absl::Span<const absl::string_view>() : kSgdSlots;
  }

  void Update(const UpdateStep& step, absl::Span<const float> old_values, absl::Span<const float> gradient,
              absl::Span<const Slot> slots, float* new_values) const override {
    const float lr = step.learning_rate;
    const float mu = momentum_;
    if (mu == 0) {
      ForEachElement(isa_, old_values, gradient,
                     [=](int64_t i, float w, float g) CAIRN_INLINE_LAMBDA { new_values[i] = w - lr * g; });
      return;
    }
    const auto [m_old, m] = slots[0];
    if (!nesterov_) {
      ForEachElement(isa_, old_values, gradient, [=](int64_t i, float w, float g) CAIRN_INLINE_LAMBDA {
        const float m_new = mu * m_old[i] - lr * g;
        m[i] = m_new;
        new_values[i] = w + m_new;
      });
      return;
    }
    ForEachElement(isa_, old_values, gradient, [=](int64_t i, float w, float g) CAIRN_INLINE_LAMBDA {
      const float m_new = mu * m_old[i] - lr * g;
      m[i] = m_new;
      new_values[i] = w + mu * m_new - lr * g;
    });
  }

 private:
  const float momentum_;
  const bool nesterov_;
  const Isa isa_;
};

}  // namespace

std::unique_ptr<const UpdateRule> MakeSgd(HyperparameterReader& read, Isa isa) {
  const auto momentum = static_cast<float>(read.Take("momentum", 0, Domain::kUnit));
  const bool nesterov = read.Take("nesterov", 0, Domain::kFlag) != 0;
  return std::make_unique<Sgd>(momentum, nesterov, isa);
}

}  // namespace cairn::optim
