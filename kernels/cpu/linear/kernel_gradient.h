#pragma once

#include "absl/status/status.h"

namespace cairn::kernels::cpu {

// Computes the gradients of a linear map by its kernel and its bias where ours is faster than oneDNN's primitive.
class KernelGradient {
 public:
  virtual ~KernelGradient() = default;
  // The source in the format of the map's forward primitive, dy in the output's layout, dkernel in the caller's format.
  // dbias is null without a bias.
  virtual absl::Status Run(const float* source, const float* dy, float* dkernel, float* dbias) = 0;
};

}  // namespace cairn::kernels::cpu
