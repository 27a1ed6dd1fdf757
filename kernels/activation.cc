#include "kernels/activation.h"

#include <cmath>

namespace cairn::kernels {

bool ActivationParams::is_plain_relu() const {
  return kind == Activation::kRelu && slope == 0 && threshold == 0 &&
         limit == std::numeric_limits<float>::infinity();
}

bool ActivationParams::has_gradient_of_output() const {
  constexpr float kExact =
      256;  // whole numbers up to this are exact in 16 bits, so the output is not below the limit
  const bool exact_limit = limit > 0 && limit <= kExact && limit == std::floor(limit);
  return is_plain_relu() || (kind == Activation::kRelu && slope == 0 && threshold == 0 && exact_limit);
}

bool ActivationParams::has_derivative_of_value() const {
  switch (kind) {
    case Activation::kRelu:
      return threshold == 0 && slope >= 0;
    case Activation::kLinear:
    case Activation::kElu:
    case Activation::kSelu:
    case Activation::kSigmoid:
    case Activation::kTanh:
    case Activation::kSoftplus:
    case Activation::kHardSigmoid:
      return true;
    default:
      return false;
  }
}

bool ActivationParams::keeps_zero() const {
  switch (kind) {
    case Activation::kSigmoid:
    case Activation::kSoftplus:
    case Activation::kHardSigmoid:
    case Activation::kExp:
    case Activation::kLog:
    case Activation::kSqrt:  // its derivative at 0 is infinite: a gradient of 0 there would become NaN
    case Activation::kRsqrt:
    case Activation::kReciprocal:
    case Activation::kCos:
      return false;
    case Activation::kRelu:
      return threshold == 0 || slope == 0;
    default:
      return true;
  }
}

}  // namespace cairn::kernels
