#include "kernels/ops.h"

namespace cairn::kernels {

bool ActivationParams::is_plain_relu() const {
  return kind == Activation::kRelu && slope == 0 && threshold == 0 &&
         limit == std::numeric_limits<float>::infinity();
}

bool ActivationParams::keeps_zero() const {
  switch (kind) {
    case Activation::kSigmoid:
    case Activation::kSoftplus:
    case Activation::kHardSigmoid:
      return false;
    case Activation::kRelu:
      return threshold == 0 || slope == 0;
    default:
      return true;
  }
}

}  // namespace cairn::kernels
