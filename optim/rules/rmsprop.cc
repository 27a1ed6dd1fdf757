#include "optim/rules/rmsprop.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "optim/simd/loop.h"

namespace cairn::optim {
namespace {

struct RmspropConstants {
  double rho, momentum, epsilon;
  bool centered;
};

// Slots: "velocity", the average squared gradient; "momentum", if it is used; "average_gradient",
// if centered.
class Rmsprop final : public UpdateRule {
 public:
  Rmsprop(const RmspropConstants& constants, Isa isa) : constants_(constants), isa_(isa) {
    slot_names_ = {"velocity"};
    if (constants_.momentum > 0) slot_names_.push_back("momentum");
    if (constants_.centered) slot_names_.push_back("average_gradient");
  }

  absl::Span<const absl::string_view> slot_names() const override { return slot_names_; }

  void Update(const UpdateStep& step, absl::Span<const float> old_values, absl::Span<const float> gradient,
              absl::Span<const Slot> slots, float* new_values) const override {
    const auto [v_old, v] = slots[0];
    const auto [a_old, a] = slots.back();
    const float lr = step.learning_rate;
    const float rho = static_cast<float>(constants_.rho);
    const float one_minus_rho = static_cast<float>(1 - constants_.rho);
    const float epsilon = static_cast<float>(constants_.epsilon);
    // lr * gradient, divided by the root of the mean square. `centered` divides by the root of the variance,
    // which is the mean square minus the square of the mean.
    const auto plain = [=](int64_t i, float g) CAIRN_INLINE_LAMBDA {
      v[i] = rho * v_old[i] + one_minus_rho * (g * g);
      return lr * g / std::sqrt(v[i] + epsilon);
    };
    // std::max() keeps rounding from making the variance negative and its root NaN, as can happen in Keras.
    const auto centered = [=](int64_t i, float g) CAIRN_INLINE_LAMBDA {
      v[i] = rho * v_old[i] + one_minus_rho * (g * g);
      a[i] = rho * a_old[i] + one_minus_rho * g;
      return lr * g / std::sqrt(std::max(v[i] - a[i] * a[i], 0.0f) + epsilon);
    };
    if (constants_.centered) {
      Move(centered, old_values, gradient, slots, new_values);
    } else {
      Move(plain, old_values, gradient, slots, new_values);
    }
  }

 private:
  template <typename Increment>
  void Move(Increment increment, absl::Span<const float> old_values, absl::Span<const float> gradient,
            absl::Span<const Slot> slots, float* new_values) const {
    if (constants_.momentum == 0) {
      ForEachElement(isa_, old_values, gradient, [=](int64_t i, float w, float g) CAIRN_INLINE_LAMBDA {
        new_values[i] = w - increment(i, g);
      });
      return;
    }
    const auto [m_old, m] = slots[1];
    const float mu = static_cast<float>(constants_.momentum);
    ForEachElement(isa_, old_values, gradient, [=](int64_t i, float w, float g) CAIRN_INLINE_LAMBDA {
      m[i] = mu * m_old[i] + increment(i, g);
      new_values[i] = w - m[i];
    });
  }

  const RmspropConstants constants_;
  const Isa isa_;
  std::vector<absl::string_view> slot_names_;
};

}  // namespace

std::unique_ptr<const UpdateRule> MakeRmsprop(HyperparameterReader& read, Isa isa) {
  RmspropConstants constants;
  constants.rho = read.Take("rho", 0.9, Domain::kUnit);
  constants.momentum = read.Take("momentum", 0, Domain::kUnit);
  constants.epsilon = read.Take("epsilon", 1e-7, Domain::kPositive);
  constants.centered = read.Take("centered", 0, Domain::kFlag) != 0;
  return std::make_unique<Rmsprop>(constants, isa);
}

}  // namespace cairn::optim
