#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>

#include "optim/rules/torch/torch_rules.h"
#include "optim/simd/loop.h"

namespace cairn::optim {
namespace {

struct TorchRmspropConstants {
  double alpha, momentum, epsilon;
  bool centered;
};

class TorchRmsprop final : public UpdateRule {
 public:
  TorchRmsprop(const TorchRmspropConstants& constants, Isa isa) : constants_(constants), isa_(isa) {
    slot_names_ = {"square_avg"};
    if (constants_.momentum > 0) slot_names_.push_back("momentum_buffer");
    if (constants_.centered) slot_names_.push_back("grad_avg");
  }

  absl::Span<const absl::string_view> slot_names() const override { return slot_names_; }

  void Update(const UpdateStep& step, absl::Span<const float> old_values, absl::Span<const float> gradient,
              absl::Span<const Slot> slots, float* new_values) const override {
    const auto [v_old, v] = slots[0];
    const auto [a_old, a] = slots.back();
    const float alpha = static_cast<float>(constants_.alpha);
    const float one_minus_alpha = static_cast<float>(1 - constants_.alpha);
    const float epsilon = static_cast<float>(constants_.epsilon);
    const auto plain = [=](int64_t i, float g) CAIRN_INLINE_LAMBDA {
      v[i] = alpha * v_old[i] + one_minus_alpha * (g * g);
      return std::sqrt(v[i]) + epsilon;
    };
    // std::max() keeps rounding from making the variance negative and its root NaN, as can happen in torch.
    const auto centered = [=](int64_t i, float g) CAIRN_INLINE_LAMBDA {
      v[i] = alpha * v_old[i] + one_minus_alpha * (g * g);
      a[i] = a_old[i] + (g - a_old[i]) * one_minus_alpha;
      return std::sqrt(std::max(v[i] - a[i] * a[i], 0.0f)) + epsilon;
    };
    const Range range = {old_values, gradient, slots, new_values};
    if (constants_.centered) {
      Move(centered, step.learning_rate, range);
    } else {
      Move(plain, step.learning_rate, range);
    }
  }

 private:
  struct Range {
    absl::Span<const float> old_values;
    absl::Span<const float> gradient;
    absl::Span<const Slot> slots;
    float* new_values;
  };

  // `divisor(i, g)` updates the averages of element i and returns the divisor of its gradient.
  template <typename Divisor>
  void Move(Divisor divisor, float lr, const Range& range) const {
    float* const new_values = range.new_values;
    if (constants_.momentum == 0) {
      ForEachElement(isa_, range.old_values, range.gradient,
                     [=](int64_t i, float w, float g)
                         CAIRN_INLINE_LAMBDA { new_values[i] = w - lr * g / divisor(i, g); });
      return;
    }
    const auto [m_old, m] = range.slots[1];
    const float mu = static_cast<float>(constants_.momentum);
    ForEachElement(isa_, range.old_values, range.gradient,
                   [=](int64_t i, float w, float g) CAIRN_INLINE_LAMBDA {
                     m[i] = mu * m_old[i] + g / divisor(i, g);
                     new_values[i] = w - lr * m[i];
                   });
  }

  const TorchRmspropConstants constants_;
  const Isa isa_;
  std::vector<absl::string_view> slot_names_;
};

}  // namespace

std::unique_ptr<const UpdateRule> MakeTorchRmsprop(HyperparameterReader& read, Isa isa) {
  TorchRmspropConstants constants;
  constants.alpha = read.Take("alpha", 0.99, Domain::kNonNegative);
  constants.momentum = read.Take("momentum", 0, Domain::kNonNegative);
  constants.epsilon = read.Take("eps", 1e-8, Domain::kNonNegative);
  constants.centered = read.Take("centered", 0, Domain::kFlag) != 0;
  return std::make_unique<TorchRmsprop>(constants, isa);
}

}  // namespace cairn::optim
