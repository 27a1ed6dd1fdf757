#include "ps/optim/rmsprop.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "ps/optim/loop.h"

namespace cairn::ps {
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
    const int64_t count = static_cast<int64_t>(old_values.size());
    const float* w = old_values.data();
    const float* g = gradient.data();
    const float* v_old = slots[0].from;
    float* v = slots[0].to;
    const float* a_old = slots.back().from;
    float* a = slots.back().to;
    const float lr = step.learning_rate;
    const float rho = static_cast<float>(constants_.rho);
    const float one_minus_rho = static_cast<float>(1 - constants_.rho);
    const float epsilon = static_cast<float>(constants_.epsilon);
    // lr * gradient, divided by the root of the mean square. `centered` divides by the root of the variance,
    // which is the mean square minus the square of the mean.
    const auto plain = [=](int64_t i) CAIRN_INLINE_LAMBDA {
      v[i] = rho * v_old[i] + one_minus_rho * (g[i] * g[i]);
      return lr * g[i] / std::sqrt(v[i] + epsilon);
    };
    // std::max() keeps rounding from making the variance negative and its root NaN, as can happen in Keras.
    const auto centered = [=](int64_t i) CAIRN_INLINE_LAMBDA {
      v[i] = rho * v_old[i] + one_minus_rho * (g[i] * g[i]);
      a[i] = rho * a_old[i] + one_minus_rho * g[i];
      return lr * g[i] / std::sqrt(std::max(v[i] - a[i] * a[i], 0.0f) + epsilon);
    };
    if (constants_.centered) {
      Move(centered, count, w, slots, new_values);
    } else {
      Move(plain, count, w, slots, new_values);
    }
  }

 private:
  template <typename Increment>
  void Move(Increment increment, int64_t count, const float* w, absl::Span<const Slot> slots,
            float* new_values) const {
    if (constants_.momentum == 0) {
      ForEachElement(isa_, count,
                     [=](int64_t i) CAIRN_INLINE_LAMBDA { new_values[i] = w[i] - increment(i); });
      return;
    }
    const float* m_old = slots[1].from;
    float* m = slots[1].to;
    const float mu = static_cast<float>(constants_.momentum);
    ForEachElement(isa_, count, [=](int64_t i) CAIRN_INLINE_LAMBDA {
      m[i] = mu * m_old[i] + increment(i);
      new_values[i] = w[i] - m[i];
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

}  // namespace cairn::ps
