// The scalar formulas of the operations, written once: every backend compiles this file.
//
// NaN and infinity pass through all of them as through Keras' own formulas (kernels/README.md). So nothing
// here uses fmin() or fmax(), which drop a NaN, and comparisons keep the NaN.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

#include "common/core/host_device.h"
#include "kernels/activation.h"
#include "kernels/loss.h"

namespace cairn::kernels {

// Keras' backend.epsilon(): probabilities are clipped to [kProbabilityEpsilon, 1 - kProbabilityEpsilon].
inline constexpr float kProbabilityEpsilon = 1e-7f;

// The element-wise functions, as Keras defines them, and their derivatives with respect to x.
CAIRN_HOST_DEVICE inline float Sigmoid(float x) {
  // Neither form overflows on its side of 0.
  if (x >= 0) return 1.0f / (1.0f + std::exp(-x));
  const float e = std::exp(x);
  return e / (1.0f + e);
}
// log(1 + exp(x))
CAIRN_HOST_DEVICE inline float Softplus(float x) {
  return std::fmax(x, 0.0f) + std::log1p(std::exp(-std::fabs(x)));
}

// The factor that gives a row the norm 1, from its sum of squares.
CAIRN_HOST_DEVICE inline float InverseNorm(float squares, float epsilon) {
  const float inverse = 1.0f / std::sqrt(squares);
  return inverse > 1.0f / epsilon ? 1.0f / epsilon : inverse;
}
// The factor of y in (dy - y * factor) * InverseNorm(), the gradient of x, from the sum of y * dy.
CAIRN_HOST_DEVICE inline float UnitNormDot(float squares, float epsilon, float dot) {
  return 1.0f / std::sqrt(squares) > 1.0f / epsilon ? 0.0f : dot;
}

// Klambauer et al., "Self-Normalizing Neural Networks", 2017.
inline constexpr float kSeluAlpha = 1.6732632423543772f;
inline constexpr float kSeluScale = 1.0507009873554805f;

inline constexpr float kInverseSqrt2 = 0.70710678118654752f;
inline constexpr float kInverseSqrt2Pi = 0.39894228040143268f;
// Hendrycks and Gimpel, "Gaussian Error Linear Units", 2016: tanh(kGeluTanhScale (x + kGeluTanhCubic x^3)).
inline constexpr float kGeluTanhScale = 0.79788456080286536f;  // sqrt(2 / pi)
inline constexpr float kGeluTanhCubic = 0.044715f;

// max(x, 0)
CAIRN_HOST_DEVICE inline float Relu(float x) {
  return x < 0 ? 0.0f : x;
}

// Whether `candidate`, which comes later, replaces `largest` as the maximum. Of equal values, the first stays
// the maximum. NaN counts as larger than every number.
CAIRN_HOST_DEVICE inline bool IsLarger(float candidate, float largest) {
  return candidate > largest || candidate != candidate;
}

CAIRN_HOST_DEVICE inline float HardSigmoid(float x) {
  const float y = x * (1.0f / 6) + 0.5f;
  if (y < 0) return 0;
  return y > 1 ? 1.0f : y;
}

// -1, 0 or 1; NaN for NaN.
CAIRN_HOST_DEVICE inline float Sign(float x) {
  if (x > 0) return 1;
  if (x < 0) return -1;
  return x == 0 ? 0.0f : x;
}

CAIRN_HOST_DEVICE inline float Activate(const ActivationParams& f, float x) {
  switch (f.kind) {
    case Activation::kLinear:
      return x;
    case Activation::kRelu:
      if (x < f.threshold) return f.slope == 0 ? 0.0f : f.slope * (x - f.threshold);  // avoids 0 * infinity
      return x > f.limit ? f.limit : x;
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
    case Activation::kHardSigmoid:
      return HardSigmoid(x);
    case Activation::kHardSilu:
      return x * HardSigmoid(x);
    case Activation::kExp:
      return std::exp(x);
    case Activation::kLog:
      return std::log(x);
    case Activation::kLog1p:
      return std::log1p(x);
    case Activation::kSqrt:
      return std::sqrt(x);
    case Activation::kRsqrt:
      return 1.0f / std::sqrt(x);
    case Activation::kReciprocal:
      return 1.0f / x;
    case Activation::kSin:
      return std::sin(x);
    case Activation::kCos:
      return std::cos(x);
    case Activation::kSign:
      return Sign(x);
    case Activation::kFloor:
      return std::floor(x);
    case Activation::kCeil:
      return std::ceil(x);
    case Activation::kRound:
      return std::rint(x);
    case Activation::kTruncate:
      return std::trunc(x);
  }
  return x;
}

// The derivative of a relu at its threshold. Keras' leaky relu without a limit is TensorFlow's, which has its slope
// there. Any other relu has 0.
CAIRN_HOST_DEVICE inline float ReluDerivativeAtThreshold(const ActivationParams& f) {
  return f.threshold == 0 && f.limit == std::numeric_limits<float>::infinity() ? f.slope : 0.0f;
}

CAIRN_HOST_DEVICE inline float SiluDerivative(float x) {
  const float sigmoid = Sigmoid(x);
  return sigmoid * (1.0f + x * (1.0f - sigmoid));
}
CAIRN_HOST_DEVICE inline float GeluTanhDerivative(float x) {
  const float t = std::tanh(kGeluTanhScale * (x + kGeluTanhCubic * x * x * x));
  return 0.5f * (1.0f + t) +
         0.5f * x * (1.0f - t * t) * kGeluTanhScale * (1.0f + 3.0f * kGeluTanhCubic * x * x);
}

CAIRN_HOST_DEVICE inline float ActivationDerivative(const ActivationParams& f, float x) {
  switch (f.kind) {
    case Activation::kLinear:
      return 1;
    case Activation::kRelu:
      // The derivative is 0 for NaN. An infinite x does not exceed an infinite limit.
      if (x > f.threshold)
        return x < f.limit || f.limit == std::numeric_limits<float>::infinity() ? 1.0f : 0.0f;
      if (x == f.threshold) return ReluDerivativeAtThreshold(f);
      return x < f.threshold ? f.slope : 0.0f;
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
    case Activation::kSilu:
      return SiluDerivative(x);
    case Activation::kGelu:
      return 0.5f * (1.0f + std::erf(x * kInverseSqrt2)) + x * kInverseSqrt2Pi * std::exp(-0.5f * x * x);
    case Activation::kGeluTanh:
      return GeluTanhDerivative(x);
    case Activation::kHardSigmoid:
      return x > -3 && x < 3 ? 1.0f / 6 : 0.0f;
    case Activation::kHardSilu:
      if (x <= -3) return 0;
      return x >= 3 ? 1.0f : x * (1.0f / 3) + 0.5f;
    case Activation::kExp:
      return std::exp(x);
    case Activation::kLog:
      return 1.0f / x;
    case Activation::kLog1p:
      return 1.0f / (1.0f + x);
    case Activation::kSqrt:
      return 0.5f / std::sqrt(x);
    case Activation::kRsqrt:
      return -0.5f / std::sqrt(x) / x;
    case Activation::kReciprocal:
      return -(1.0f / x) * (1.0f / x);
    case Activation::kSin:
      return std::cos(x);
    case Activation::kCos:
      return -std::sin(x);
    case Activation::kSign:
    case Activation::kFloor:
    case Activation::kCeil:
    case Activation::kRound:
    case Activation::kTruncate:
      return 0;
  }
  return 1;
}

// f'(x) from y = f(x). It equals ActivationDerivative() up to rounding.
CAIRN_HOST_DEVICE inline float DerivativeOfValue(const ActivationParams& f, float y) {
  switch (f.kind) {
    case Activation::kRelu:
      if (y > 0) return y < f.limit || f.limit == std::numeric_limits<float>::infinity() ? 1.0f : 0.0f;
      if (y == 0) return ReluDerivativeAtThreshold(f);
      return y < 0 ? f.slope : 0.0f;
    case Activation::kElu:
      return y > 0 ? 1.0f : y + f.slope;
    case Activation::kSelu:
      return y > 0 ? kSeluScale : y + kSeluScale * kSeluAlpha;
    case Activation::kSigmoid:
      return y * (1.0f - y);
    case Activation::kTanh:
      return 1.0f - y * y;
    case Activation::kSoftplus:
      return 1.0f - std::exp(-y);
    case Activation::kHardSigmoid:
      return y > 0 && y < 1 ? 1.0f / 6 : 0.0f;
    default:
      return 1;
  }
}

// dx for y = Activate(f, x). Where the derivative of a relu or of a step function is 0, dx is 0 even if dy is not
// finite. Fused relus, which select instead of multiplying by 0, therefore agree with separate relus. (JAX
// always selects; TensorFlow multiplies on the CPU and selects on the GPU.)
CAIRN_HOST_DEVICE inline float ActivationGradient(const ActivationParams& f, float x, float dy) {
  const float derivative = ActivationDerivative(f, x);
  const bool selects = f.kind == Activation::kRelu || f.is_step();
  return selects && derivative == 0 ? 0.0f : dy * derivative;
}

// The gradient of softmax for one output: dx_j = y_j (dy_j - sum_k y_k dy_k).
CAIRN_HOST_DEVICE inline float SoftmaxGradient(float y, float dy, float dot) {
  return y * (dy - dot);
}

// The penalty l1 * sum |w| + l2 * sum w^2, and its gradient with respect to w. As in Keras, a term whose
// factor is 0 is omitted, because 0 * infinity is NaN.
CAIRN_HOST_DEVICE inline double WeightPenalty(float l1, float l2, double sum, double sum_of_squares) {
  return (l1 == 0 ? 0.0 : l1 * sum) + (l2 == 0 ? 0.0 : l2 * sum_of_squares);
}
CAIRN_HOST_DEVICE inline float PenaltyGradient(float l1, float l2, float w) {
  return (l1 == 0 ? 0.0f : l1 * Sign(w)) + (l2 == 0 ? 0.0f : 2 * l2 * w);
}

// One element of GaussianSample. A penalty whose factor is 0 is omitted, because 0 * infinity is NaN.
CAIRN_HOST_DEVICE inline float SampleOf(float mean, float log_variance, float noise) {
  return mean + std::exp(0.5f * log_variance) * noise;
}
CAIRN_HOST_DEVICE inline double SampleDivergence(float mean, float log_variance) {
  return 0.5 * (double{std::expm1(log_variance)} - double{log_variance} + double{mean} * double{mean});
}
CAIRN_HOST_DEVICE inline float SampleMeanGradient(float factor, float mean, float dy) {
  return factor == 0 ? dy : dy + factor * mean;
}
CAIRN_HOST_DEVICE inline float SampleVarianceGradient(float factor, float log_variance, float noise,
                                                      float dy) {
  const float of_sample = 0.5f * dy * noise * std::exp(0.5f * log_variance);
  return factor == 0 ? of_sample : of_sample + 0.5f * factor * std::expm1(log_variance);
}

// The losses of keras/src/losses/losses.py, computed as in keras/src/backend/{jax,torch}/nn.py, which agree.
// y is an output and t its target. Gradients are with respect to y, before weights.

// Keras' label_smoothing: (1 - s) t + s u, where u is the uniform target: 1 / width for categories, 1/2 for
// binary classes.
struct LabelSmoothing {
  float keep = 1;  // 1 - s
  float add = 0;   // s u
  CAIRN_HOST_DEVICE float operator()(float target) const { return target * keep + add; }
};
inline LabelSmoothing MakeSmoothing(const LossParams& params) {
  const double ignorant = IsBinary(params.kind) ? 0.5 : 1 / static_cast<double>(params.width);
  return {.keep = static_cast<float>(1 - params.label_smoothing),
          .add = static_cast<float>(params.label_smoothing * ignorant)};
}

// Whether a label is the index of one of `classes`.
CAIRN_HOST_DEVICE inline bool IsClassIndex(float label, int64_t classes) {
  return label >= 0 && label < static_cast<float>(classes) && label == std::floor(label);
}

// One class's term of the cross entropy of logits x: log(sum_j exp(x_j)) - x_k, to be multiplied by its
// target. `largest` = max_j x_j has been subtracted from the exponents: log_sum = log(sum_j exp(x_j -
// largest)).
CAIRN_HOST_DEVICE inline float LogitLoss(float logit, float largest, float log_sum) {
  return log_sum - (logit - largest);
}

// The gradient with respect to x_k: softmax_k * (sum_j t_j) - t_k.
CAIRN_HOST_DEVICE inline float LogitLossGradient(float probability, float target, float sum_of_targets) {
  return probability * sum_of_targets - target;
}

// The cross entropy of outputs that are already probabilities: they are divided by their sum, then clipped. A
// class's term is -log(clip(y_k / sum)), to be multiplied by its target.
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

// The gradient with respect to y_k: (sum of the targets whose outputs were not clipped) / sum - t_k / y_k,
// where the last term is omitted for a clipped output.
CAIRN_HOST_DEVICE inline float ProbabilityLossGradient(float output, float sum, float target,
                                                       float sum_of_unclipped_targets) {
  return sum_of_unclipped_targets / sum - (IsClipped(output / sum) ? 0.0f : target / output);
}

// The categorical focal cross entropy, of probabilities p that are divided by their sum, then clipped. The term of a
// class is Value(clip(p)), to be multiplied by Share(). The gradient with respect to the output k is
// (s_k - sum_j s_j p_j) times 1 / sum for outputs that are probabilities and p_k for logits, where s is Share() times
// Slope(), and 0 where p is clipped.
struct CategoricalFocal {
  LabelSmoothing smooth;
  float gamma = 0, alpha = 0;
  const float* class_alphas = nullptr;  // [width], or null

  CAIRN_HOST_DEVICE float Share(float target, int64_t j) const {
    return smooth(target) * (class_alphas == nullptr ? alpha : class_alphas[j]);
  }
  CAIRN_HOST_DEVICE float Value(float clipped) const {
    return -std::pow(1.0f - clipped, gamma) * std::log(clipped);
  }
  CAIRN_HOST_DEVICE float Slope(float p) const {
    if (IsClipped(p)) return 0;
    const float of_factor = gamma == 0 ? 0.0f : gamma * std::pow(1.0f - p, gamma - 1) * std::log(p);
    return of_factor - std::pow(1.0f - p, gamma) / p;
  }
};

// `class_alphas`: LossParams::class_alphas where the loss is computed; not used if that is empty.
inline CategoricalFocal MakeCategoricalFocal(const LossParams& params, const float* class_alphas) {
  return {.smooth = MakeSmoothing(params),
          .gamma = static_cast<float>(params.gamma),
          .alpha = static_cast<float>(params.alpha),
          .class_alphas = params.class_alphas.empty() ? nullptr : class_alphas};
}

// The losses that are computed for each output separately: Value() and Gradient() of one output.

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

// The factor of the target is that of the output before it is clipped.
struct BinaryFocalOfProbabilities {
  BinaryCrossentropyOfProbabilities entropy;
  float gamma = 0;
  float alpha = 0, other_alpha = 0;  // the factors of the targets 1 and 0

  CAIRN_HOST_DEVICE float Value(float y, float t) const {
    return Weight(t) * Factor(y, t) * entropy.Value(y, t);
  }
  CAIRN_HOST_DEVICE float Gradient(float y, float t) const {
    const float target = entropy.smooth(t);
    const float slope =
        gamma == 0 ? 0.0f : gamma * std::pow(Miss(y, target), gamma - 1) * (1.0f - 2.0f * target);
    return Weight(t) * (slope * entropy.Value(y, t) + Factor(y, t) * entropy.Gradient(y, t));
  }

 private:
  CAIRN_HOST_DEVICE static float Miss(float y, float target) {
    return 1.0f - (target * y + (1.0f - target) * (1.0f - y));
  }
  CAIRN_HOST_DEVICE float Factor(float y, float t) const {
    return std::pow(Miss(y, entropy.smooth(t)), gamma);
  }
  CAIRN_HOST_DEVICE float Weight(float t) const {
    const float target = entropy.smooth(t);
    return target * alpha + (1.0f - target) * other_alpha;
  }
};
inline BinaryFocalOfProbabilities MakeBinaryFocal(const LossParams& params) {
  return {.entropy = {MakeSmoothing(params)},
          .gamma = static_cast<float>(params.gamma),
          .alpha = params.balanced ? static_cast<float>(params.alpha) : 1.0f,
          .other_alpha = params.balanced ? static_cast<float>(1 - params.alpha) : 1.0f};
}

// Keras computes it from the probabilities of the logits.
struct BinaryFocalOfLogits {
  BinaryFocalOfProbabilities focal;
  CAIRN_HOST_DEVICE float Value(float y, float t) const { return focal.Value(Sigmoid(y), t); }
  CAIRN_HOST_DEVICE float Gradient(float y, float t) const {
    const float p = Sigmoid(y);
    return focal.Gradient(p, t) * p * (1.0f - p);
  }
};

struct SquaredError {
  CAIRN_HOST_DEVICE float Value(float y, float t) const { return (y - t) * (y - t); }
  CAIRN_HOST_DEVICE float Gradient(float y, float t) const { return 2.0f * (y - t); }
};

struct AbsoluteError {
  CAIRN_HOST_DEVICE float Value(float y, float t) const { return std::fabs(y - t); }
  // 0 where the error is 0, as in all of Keras' backends.
  CAIRN_HOST_DEVICE float Gradient(float y, float t) const { return Sign(y - t); }
};

struct HuberLoss {
  float delta = 1;
  CAIRN_HOST_DEVICE float Value(float y, float t) const {
    const float error = std::fabs(y - t);
    return error <= delta ? 0.5f * error * error : delta * error - 0.5f * delta * delta;
  }
  CAIRN_HOST_DEVICE float Gradient(float y, float t) const {
    const float error = y - t;
    return std::fabs(error) <= delta ? error : delta * Sign(error);
  }
};

}  // namespace cairn::kernels
