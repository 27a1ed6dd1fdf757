#include "ps/optim/sgd.h"

#include "ps/optim/loop.h"

namespace cairn::ps {
namespace {

constexpr absl::string_view kSlots[] = {"momentum"};

// Keras keeps -learning_rate * gradient in the momentum. TensorFlow 1 keeps the gradient and multiplies it by
// the rate on use. The two agree as long as the rate is constant.
class Sgd final : public UpdateRule {
 public:
  Sgd(float momentum, bool nesterov, Isa isa) : momentum_(momentum), nesterov_(nesterov), isa_(isa) {}

  absl::Span<const absl::string_view> slot_names() const override {
    return momentum_ == 0 ? absl::Span<const absl::string_view>() : kSlots;
  }

  void Update(const UpdateStep& step, absl::Span<const float> old_values, absl::Span<const float> gradient,
              absl::Span<const Slot> slots, float* new_values) const override {
    const int64_t count = static_cast<int64_t>(old_values.size());
    const float* w = old_values.data();
    const float* g = gradient.data();
    const float lr = step.learning_rate;
    const float mu = momentum_;
    if (mu == 0) {
      ForEachElement(isa_, count, [=](int64_t i) CAIRN_INLINE_LAMBDA { new_values[i] = w[i] - lr * g[i]; });
      return;
    }
    const float* m_old = slots[0].from;
    float* m = slots[0].to;
    if (!nesterov_) {
      ForEachElement(isa_, count, [=](int64_t i) CAIRN_INLINE_LAMBDA {
        const float m_new = mu * m_old[i] - lr * g[i];
        m[i] = m_new;
        new_values[i] = w[i] + m_new;
      });
      return;
    }
    ForEachElement(isa_, count, [=](int64_t i) CAIRN_INLINE_LAMBDA {
      const float m_new = mu * m_old[i] - lr * g[i];
      m[i] = m_new;
      new_values[i] = w[i] + mu * m_new - lr * g[i];
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

}  // namespace cairn::ps
