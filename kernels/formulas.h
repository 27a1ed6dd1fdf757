// The scalar formulas of the operations, written once: every backend compiles these lines.
#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/ops.h"

#if defined(__CUDACC__)
#define CAIRN_HOST_DEVICE __host__ __device__
#else
#define CAIRN_HOST_DEVICE
#endif

namespace cairn::kernels {

// Keras' backend.epsilon(): probabilities are clipped to [kProbabilityEpsilon, 1 - kProbabilityEpsilon].
inline constexpr float kProbabilityEpsilon = 1e-7f;

// The element-wise functions, as Keras defines them, and their derivatives with respect to x.
CAIRN_HOST_DEVICE inline float Sigmoid(float x) {
  // Neither form overflows on its side.
  if (x >= 0) return 1.0f / (1.0f + std::exp(-x));
  const float e = std::exp(x);
  return e / (1.0f + e);
}
// log(1 + exp(x))
CAIRN_HOST_DEVICE inline float Softplus(float x) {
  return std::fmax(x, 0.0f) + std::log1p(std::exp(-std::fabs(x)));
}

// Klambauer et al., "Self-Normalizing Neural Networks", 2017.
inline constexpr float kSeluAlpha = 1.6732632423543772f;
inline constexpr float kSeluScale = 1.0507009873554805f;

inline constexpr float kInverseSqrt2 = 0.70710678118654752f;
inline constexpr float kInverseSqrt2Pi = 0.39894228040143268f;
// Hendrycks and Gimpel, "Gaussian Error Linear Units", 2016: tanh(kGeluTanhScale (x + kGeluTanhCubic x^3)).
inline constexpr float kGeluTanhScale = 0.79788456080286536f;  // sqrt(2 / pi)
inline constexpr float kGeluTanhCubic = 0.044715f;

CAIRN_HOST_DEVICE inline float Activate(const ActivationParams& f, float x) {
  switch (f.kind) {
    case Activation::kLinear:
      return x;
    case Activation::kRelu:
      return x < f.threshold ? f.slope * (x - f.threshold) : std::fmin(x, f.limit);
    case Activation::kElu:
      return x > 0 ? x : f.slope * std::expm1(x);
    case Activation::kSelu:
      return kSeluScale * (x > 0 ? x : kSeluAlpha * std::expm1(x));
    case Activation::kSigmoid:
      return Sigmoid(x);
    case Activation::kTanh:
      return std::tanh(x);
    case Activation::kSoftplus:
      return Softplus(x);
    case Activation::kSilu:
      return x * Sigmoid(x);
    case Activation::kGelu:
      return 0.5f * x * (1.0f + std::erf(x * kInverseSqrt2));
    case Activation::kGeluTanh:
      return 0.5f * x * (1.0f + std::tanh(kGeluTanhScale * (x + kGeluTanhCubic * x * x * x)));
  }
  return x;
}

CAIRN_HOST_DEVICE inline float ActivationDerivative(const ActivationParams& f, float x) {
  switch (f.kind) {
    case Activation::kLinear:
      return 1;
    case Activation::kRelu:
      // 0 at the threshold itself, as TensorFlow has it.
      return x > f.threshold ? (x < f.limit ? 1.0f : 0.0f) : (x < f.threshold ? f.slope : 0.0f);
    case Activation::kElu:
      return x > 0 ? 1.0f : f.slope * std::exp(x);
    case Activation::kSelu:
      return x > 0 ? kSeluScale : kSeluScale * kSeluAlpha * std::exp(x);
    case Activation::kSigmoid: {
      const float y = Sigmoid(x);
      return y * (1.0f - y);
    }
    case Activation::kTanh: {
      const float y = std::tanh(x);
      return 1.0f - y * y;
    }
    case Activation::kSoftplus:
      return Sigmoid(x);
    case Activation::kSilu: {
      const float sigmoid = Sigmoid(x);
      return sigmoid * (1.0f + x * (1.0f - sigmoid));
    }
    case Activation::kGelu:
      return 0.5f * (1.0f + std::erf(x * kInverseSqrt2)) + x * kInverseSqrt2Pi * std::exp(-0.5f * x * x);
    case Activation::kGeluTanh: {
      const float t = std::tanh(kGeluTanhScale * (x + kGeluTanhCubic * x * x * x));
      return 0.5f * (1.0f + t) +
             0.5f * x * (1.0f - t * t) * kGeluTanhScale * (1.0f + 3.0f * kGeluTanhCubic * x * x);
    }
  }
  return 1;
}

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
