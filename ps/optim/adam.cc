#include "ps/optim/adam.h"

#include <cmath>

#include "common/core/status.h"
#include "ps/optim/hyperparameters.h"
#include "ps/optim/loop.h"

namespace cairn::ps {
namespace {

constexpr absl::string_view kSlots[] = {"m", "v"};  // first and second moment, as Keras 2 names them

struct AdamConstants {
  double learning_rate, beta_1, beta_2, epsilon;
};

class Adam final : public Optimizer {
 public:
  Adam(const AdamConstants& constants, Isa isa) : constants_(constants), isa_(isa) {}

  absl::string_view name() const override { return "Adam"; }
  float learning_rate() const override { return static_cast<float>(constants_.learning_rate); }
  absl::Span<const absl::string_view> slot_names() const override { return kSlots; }
  float initial_slot_value(int) const override { return 0; }

  void Update(const UpdateStep& step, absl::Span<const float> old_values, absl::Span<const float> gradient,
              absl::Span<float* const> slots, float* new_values) const override {
    const int64_t count = static_cast<int64_t>(old_values.size());
    const float* w = old_values.data();
    const float* g = gradient.data();
    float* m = slots[0];
    float* v = slots[1];
    // Keras computes alpha in float, where 1 - beta_2^t loses three digits at t = 1; ours is rounded once.
    const double t = static_cast<double>(step.t);
    const float alpha =
        static_cast<float>(step.learning_rate * std::sqrt(1 - std::pow(constants_.beta_2, t)) /
                           (1 - std::pow(constants_.beta_1, t)));
    const float one_minus_beta_1 = static_cast<float>(1 - constants_.beta_1);
    const float one_minus_beta_2 = static_cast<float>(1 - constants_.beta_2);
    const float epsilon = static_cast<float>(constants_.epsilon);
    ForEachElement(isa_, count, [=](int64_t i) CAIRN_INLINE_LAMBDA {
      const float m_new = m[i] + (g[i] - m[i]) * one_minus_beta_1;
      const float v_new = v[i] + (g[i] * g[i] - v[i]) * one_minus_beta_2;
      m[i] = m_new;
      v[i] = v_new;
      new_values[i] = w[i] - (m_new * alpha) / (std::sqrt(v_new) + epsilon);
    });
  }

 private:
  const AdamConstants constants_;
  const Isa isa_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Optimizer>> MakeAdam(const OptimizerConfig& config, Isa isa) {
  HyperparameterReader read("Adam", config);
  AdamConstants constants;
  constants.learning_rate = read.Take("learning_rate", 0.001, Domain::kNonNegative);
  constants.beta_1 = read.Take("beta_1", 0.9, Domain::kBelowOne);
  constants.beta_2 = read.Take("beta_2", 0.999, Domain::kBelowOne);
  constants.epsilon = read.Take("epsilon", 1e-7, Domain::kPositive);
  read.RefuseUnless("amsgrad", 0);
  CAIRN_RETURN_IF_ERROR(read.Finish());
  return std::make_unique<Adam>(constants, isa);
}

}  // namespace cairn::ps
