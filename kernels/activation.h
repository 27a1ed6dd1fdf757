// The functions that layers apply to each element.
#pragma once

#include <limits>

#include "common/core/host_device.h"

namespace cairn::kernels {

// Element-wise functions, as Keras defines them.
enum class Activation {
  kLinear,
  kRelu,  // with `slope`, `limit` and `threshold`: ReLU, LeakyReLU, relu6
  kElu,   // slope * (exp(x) - 1) below 0
  kSelu,
  kSigmoid,
  kTanh,
  kSoftplus,
  kSilu,
  kGelu,         // exact: x Phi(x)
  kGeluTanh,     // the approximation with tanh
  kHardSigmoid,  // x / 6 + 1/2, in [0, 1]
  kHardSilu,     // x times that
  kExp,
  kLog,    // -infinity at 0, NaN below
  kLog1p,  // log(1 + x)
  kSqrt,
  kRsqrt,       // 1 / sqrt(x)
  kReciprocal,  // 1 / x
  kSin,
  kCos,
  // Step functions, with a gradient of 0.
  kSign,  // -1, 0 or 1
  kFloor,
  kCeil,
  kRound,  // to the nearest integer, the even one of two
  kTruncate,
};

struct ActivationParams {
  Activation kind = Activation::kLinear;
  float slope = 0;                                       // kRelu: slope below the threshold; kElu: alpha
  float limit = std::numeric_limits<float>::infinity();  // kRelu: largest output
  float threshold = 0;                                   // kRelu: inputs below it use `slope`

  // Whether this is max(x, 0), which convolutions and dense layers can fuse.
  bool is_plain_relu() const;
  // Whether Backward() gives the same gradient for f(x) as for x, in any type of element.
  bool has_gradient_of_output() const;
  // Whether f'(x) follows from f(x): DerivativeOfValue() (formulas.h).
  bool has_derivative_of_value() const;
  // Whether the gradient is 0 wherever it exists.
  CAIRN_HOST_DEVICE bool is_step() const { return kind >= Activation::kSign; }
  // Whether f(0) = 0, so that padding channels stay 0.
  bool keeps_zero() const;
};

}  // namespace cairn::kernels
