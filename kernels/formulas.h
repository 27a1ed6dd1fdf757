// The scalar formulas of the operations, written once: every backend compiles these lines.
#pragma once

#include <cmath>
#include <cstdint>

#if defined(__CUDACC__)
#define CAIRN_HOST_DEVICE __host__ __device__
#else
#define CAIRN_HOST_DEVICE
#endif

namespace cairn::kernels {

// Keras' backend.epsilon(): probabilities are clipped to [kProbabilityEpsilon, 1 - kProbabilityEpsilon].
inline constexpr float kProbabilityEpsilon = 1e-7f;

// One softmax output's share of the gradient: dx_j = y_j (dy_j - sum_k y_k dy_k).
CAIRN_HOST_DEVICE inline float SoftmaxGradient(float y, float dy, float dot) {
  return y * (dy - dot);
}

// The losses are those of keras/src/losses/losses.py over keras/src/backend/{jax,torch}/nn.py, which agree;
// in all of them y is an output and t its target. The gradients are with respect to y, before weights.

// Keras' label_smoothing: (1 - s) t + s u, where u is the target of one who knows nothing: 1 / width for
// categories, 1/2 for binary classes.
struct LabelSmoothing {
  float keep = 1;  // 1 - s
  float add = 0;   // s u
  CAIRN_HOST_DEVICE float operator()(float target) const { return target * keep + add; }
};

// One class' share of the cross entropy of logits x: log(sum_j exp(x_j)) - x_k, times its target. `largest` =
// max_j x_j was taken out of the exponents: log_sum = log(sum_j exp(x_j - largest)).
CAIRN_HOST_DEVICE inline float LogitLoss(float logit, float largest, float log_sum) {
  return log_sum - (logit - largest);
}

// Its gradient with respect to x_k: softmax_k * (sum_j t_j) - t_k.
CAIRN_HOST_DEVICE inline float LogitLossGradient(float probability, float target, float sum_of_targets) {
  return probability * sum_of_targets - target;
}

// The same of outputs that are probabilities already: they are divided by their sum, then clipped, and a
// class' share is -log(clip(y_k / sum)) times its target.
CAIRN_HOST_DEVICE inline bool IsClipped(float probability) {
  return probability < kProbabilityEpsilon || probability > 1.0f - kProbabilityEpsilon;
}
CAIRN_HOST_DEVICE inline float Clip(float probability) {
  if (probability < kProbabilityEpsilon) return kProbabilityEpsilon;
  return probability > 1.0f - kProbabilityEpsilon ? 1.0f - kProbabilityEpsilon : probability;
}
CAIRN_HOST_DEVICE inline float ProbabilityLoss(float output, float sum) {
  return -std::log(Clip(output / sum));
}

// Its gradient with respect to y_k: (sum of the targets whose outputs were not clipped) / sum - t_k / y_k,
// the last without the outputs that were.
CAIRN_HOST_DEVICE inline float ProbabilityLossGradient(float output, float sum, float target,
                                                       float sum_of_unclipped_targets) {
  return sum_of_unclipped_targets / sum - (IsClipped(output / sum) ? 0.0f : target / output);
}

// The losses whose outputs stand for themselves: Value() and Gradient() of one output.

struct BinaryCrossentropyOfLogits {
  LabelSmoothing smooth;
  // max(y, 0) - y t + log(1 + exp(-|y|)): -t log(sigmoid(y)) - (1 - t) log(1 - sigmoid(y)) without overflow.
  CAIRN_HOST_DEVICE float Value(float y, float t) const {
    return (y > 0 ? y : 0.0f) - y * smooth(t) + std::log1p(std::exp(-std::fabs(y)));
  }
  CAIRN_HOST_DEVICE float Gradient(float y, float t) const {
    const float e = std::exp(-std::fabs(y));
    return (y > 0 ? 1.0f : e) / (1.0f + e) - smooth(t);
  }
};

struct BinaryCrossentropyOfProbabilities {
  LabelSmoothing smooth;
  CAIRN_HOST_DEVICE float Value(float y, float t) const {
    const float p = Clip(y), target = smooth(t);
    return -(target * std::log(p) + (1.0f - target) * std::log(1.0f - p));
  }
  CAIRN_HOST_DEVICE float Gradient(float y, float t) const {
    const float target = smooth(t);
    return IsClipped(y) ? 0.0f : (1.0f - target) / (1.0f - y) - target / y;
  }
};

struct SquaredError {
  CAIRN_HOST_DEVICE float Value(float y, float t) const { return (y - t) * (y - t); }
  CAIRN_HOST_DEVICE float Gradient(float y, float t) const { return 2.0f * (y - t); }
};

struct AbsoluteError {
  CAIRN_HOST_DEVICE float Value(float y, float t) const { return std::fabs(y - t); }
  // 0 where the error is 0, as all of Keras' backends.
  CAIRN_HOST_DEVICE float Gradient(float y, float t) const { return y > t ? 1.0f : (y < t ? -1.0f : 0.0f); }
};

struct HuberLoss {
  float delta = 1;
  CAIRN_HOST_DEVICE float Value(float y, float t) const {
    const float error = std::fabs(y - t);
    return error <= delta ? 0.5f * error * error : delta * error - 0.5f * delta * delta;
  }
  CAIRN_HOST_DEVICE float Gradient(float y, float t) const {
    const float error = y - t;
    if (std::fabs(error) <= delta) return error;
    return error > 0 ? delta : -delta;
  }
};

}  // namespace cairn::kernels
