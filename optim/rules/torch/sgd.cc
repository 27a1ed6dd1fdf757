#include <memory>

#include "optim/rules/torch/torch_rules.h"
#include "optim/simd/loop.h"

namespace cairn::optim {
namespace {

constexpr absl::string_view kTorchSgdSlots[] = {"momentum_buffer"};

struct TorchSgdConstants {
  double momentum, dampening;
  bool nesterov;
};

class TorchSgd final : public UpdateRule {
 public:
  TorchSgd(const TorchSgdConstants& constants, Isa isa) : constants_(constants), isa_(isa) {}

  absl::Span<const absl::string_view> slot_names() const override {
    return constants_.momentum == 0 ? absl::Span<const absl::string_view>() : kTorchSgdSlots;
  }

  void Update(const UpdateStep& step, absl::Span<const float> old_values, absl::Span<const float> gradient,
              absl::Span<const Slot> slots, float* new_values) const override {
    const float lr = step.learning_rate;
    if (slots.empty()) {
      ForEachElement(isa_, old_values, gradient,
                     [=](int64_t i, float w, float g) CAIRN_INLINE_LAMBDA { new_values[i] = w - lr * g; });
      return;
    }
    const auto [buffer_old, buffer] = slots[0];
    const float mu = static_cast<float>(constants_.momentum);
    // The first gradient becomes the buffer as it is.
    const float of_buffer = step.t == 1 ? 0 : mu;
    const float of_g = step.t == 1 ? 1 : static_cast<float>(1 - constants_.dampening);
    if (!constants_.nesterov) {
      ForEachElement(isa_, old_values, gradient, [=](int64_t i, float w, float g) CAIRN_INLINE_LAMBDA {
        const float buffer_new = of_buffer * buffer_old[i] + of_g * g;
        buffer[i] = buffer_new;
        new_values[i] = w - lr * buffer_new;
      });
      return;
    }
    ForEachElement(isa_, old_values, gradient, [=](int64_t i, float w, float g) CAIRN_INLINE_LAMBDA {
      const float buffer_new = of_buffer * buffer_old[i] + of_g * g;
      buffer[i] = buffer_new;
      new_values[i] = w - lr * (g + mu * buffer_new);
    });
  }

 private:
  const TorchSgdConstants constants_;
  const Isa isa_;
};

}  // namespace

std::unique_ptr<const UpdateRule> MakeTorchSgd(HyperparameterReader& read, Isa isa) {
  TorchSgdConstants constants;
  constants.momentum = read.Take("momentum", 0, Domain::kNonNegative);
  constants.dampening = read.Take("dampening", 0, Domain::kFinite);
  constants.nesterov = read.Take("nesterov", 0, Domain::kFlag) != 0;
  if (constants.nesterov && (constants.momentum == 0 || constants.dampening != 0)) {
    read.Report("nesterov requires a momentum above 0 and a dampening of 0");
  }
  return std::make_unique<TorchSgd>(constants, isa);
}

}  // namespace cairn::optim
