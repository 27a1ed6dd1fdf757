#include "ps/optim/sgd.h"

#include "common/core/status.h"
#include "ps/optim/hyperparameters.h"
#include "ps/optim/loop.h"

namespace cairn::ps {
namespace {

constexpr absl::string_view kSlots[] = {"momentum"};

// Keras keeps -learning_rate * gradient in the momentum, where TensorFlow 1 keeps the gradient and multiplies
// by the rate on use: the two agree as long as the rate is constant.
class Sgd final : public Optimizer {
 public:
  Sgd(float learning_rate, float momentum, bool nesterov, Isa isa)
      : learning_rate_(learning_rate), momentum_(momentum), nesterov_(nesterov), isa_(isa) {}

  absl::string_view name() const override { return "SGD"; }
  float learning_rate() const override { return learning_rate_; }
  absl::Span<const absl::string_view> slot_names() const override {
    return momentum_ == 0 ? absl::Span<const absl::string_view>() : kSlots;
  }
  float initial_slot_value(int) const override { return 0; }

  void Update(const UpdateStep& step, absl::Span<const float> old_values, absl::Span<const float> gradient,
              absl::Span<float* const> slots, float* new_values) const override {
    const int64_t count = static_cast<int64_t>(old_values.size());
    const float* w = old_values.data();
    const float* g = gradient.data();
    const float lr = step.learning_rate;
    const float mu = momentum_;
    if (mu == 0) {
      ForEachElement(isa_, count, [=](int64_t i) CAIRN_INLINE_LAMBDA { new_values[i] = w[i] - lr * g[i]; });
      return;
    }
    float* m = slots[0];
    if (!nesterov_) {
      ForEachElement(isa_, count, [=](int64_t i) CAIRN_INLINE_LAMBDA {
        const float m_new = mu * m[i] - lr * g[i];
        m[i] = m_new;
        new_values[i] = w[i] + m_new;
      });
      return;
    }
    ForEachElement(isa_, count, [=](int64_t i) CAIRN_INLINE_LAMBDA {
      const float m_new = mu * m[i] - lr * g[i];
      m[i] = m_new;
      new_values[i] = w[i] + mu * m_new - lr * g[i];
    });
  }

 private:
  const float learning_rate_;
  const float momentum_;
  const bool nesterov_;
  const Isa isa_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Optimizer>> MakeSgd(const OptimizerConfig& config, Isa isa) {
  HyperparameterReader read("SGD", config);
  const double learning_rate = read.Take("learning_rate", 0.01, Domain::kNonNegative);
  const double momentum = read.Take("momentum", 0, Domain::kUnit);
  const double nesterov = read.Take("nesterov", 0, Domain::kFlag);
  CAIRN_RETURN_IF_ERROR(read.Finish());
  return std::make_unique<Sgd>(static_cast<float>(learning_rate), static_cast<float>(momentum), nesterov != 0,
                               isa);
}

}  // namespace cairn::ps
