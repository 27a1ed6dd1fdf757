// The factor by which float16 gradients are scaled. It is halved when they overflow, and doubled after many
// steps without overflow. Owned by a replica, used by its thread.
#pragma once

namespace cairn::nn {

class LossScale {
 public:
  // The values of PyTorch's GradScaler.
  static constexpr float kFirst = 65536, kLargest = 16777216;
  static constexpr int kStepsToDouble = 2000;
  // The smallest scale. Gradients that are infinite or NaN even at this scale have another cause than
  // overflow.
  static constexpr float kSmallest = 1.0f / 16384;

  float value() const { return value_; }

  // Call after a step that overflowed. Returns true if the step should be repeated with the new value.
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
