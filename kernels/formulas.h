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

// Cross entropy of logits x with label l: log(sum_j exp(x_j)) - x_l, where `largest` = max_j x_j was taken
// out of the exponents: sum = sum_j exp(x_j - largest).
CAIRN_HOST_DEVICE inline float LogitLoss(float label_logit, float largest, float sum) {
  return std::log(sum) - (label_logit - largest);
}

// Its gradient with respect to x_j, weighted: (softmax_j - [j = l]) * weight.
CAIRN_HOST_DEVICE inline float LogitLossGradient(float probability, bool is_label, float weight) {
  return (probability - (is_label ? 1.0f : 0.0f)) * weight;
}

// Cross entropy of outputs that are probabilities already. Keras (JAX and torch backends) divides by their
// sum, then clips: L = -log(clip(p_l / sum)). The gradient with respect to p_j is 1/sum - [j = l] / p_l, and
// 0 where the clip cuts it off.
struct ProbabilityLoss {
  float loss;
  bool clipped;
};
CAIRN_HOST_DEVICE inline ProbabilityLoss LossOfProbability(float label_output, float sum) {
  const float p = label_output / sum;
  if (p < kProbabilityEpsilon) return {-std::log(kProbabilityEpsilon), true};
  if (p > 1.0f - kProbabilityEpsilon) return {-std::log(1.0f - kProbabilityEpsilon), true};
  return {-std::log(p), false};
}
CAIRN_HOST_DEVICE inline float ProbabilityLossGradient(float label_output, float sum, bool is_label,
                                                       float weight) {
  return (1.0f / sum - (is_label ? 1.0f / label_output : 0.0f)) * weight;
}

}  // namespace cairn::kernels
