// The factor that gradients in float16 are scaled by: halved when they overflow, doubled when they have not
// for a while. Owned by a replica, used by its thread.
#pragma once

namespace cairn::nn {

class LossScale {
 public:
  // Those of PyTorch's GradScaler.
  static constexpr float kFirst = 65536, kLargest = 16777216;
  static constexpr int kStepsToDouble = 2000;
  // Gradients that overflow even so are not finite for other reasons.
  static constexpr float kSmallest = 1.0f / 16384;

  float value() const { return value_; }

  // After a step that overflowed: true when it is worth another try with the new value.
  bool Halve() {
    good_steps_ = 0;
    if (value_ <= kSmallest) return false;
    value_ /= 2;
    return true;
  }
  void CountGoodStep() {
    if (++good_steps_ < kStepsToDouble) return;
    good_steps_ = 0;
    if (value_ < kLargest) value_ *= 2;
  }

 private:
  float value_ = kFirst;
  int good_steps_ = 0;
};

}  // namespace cairn::nn
