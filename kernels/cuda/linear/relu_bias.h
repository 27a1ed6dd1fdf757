// The epilogue of a linear map: bias, relu, and the gradients of both.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/cuda/runtime/context.h"
#include "kernels/device.h"

namespace cairn::kernels::cuda {

// The epilogue for the sums y [rows, channels] of a linear map: y = y + bias, then y = max(y, 0) if `relu`.
struct BiasRelu {
  ElementType type = ElementType::kFloat32;
  int64_t rows = 0, channels = 0;
  const float* bias = nullptr;  // [channels] at any address, or null
  bool relu = false;
};
// Applies the epilogue to y in place. Our relu keeps a NaN; the fused relus of cuDNN and cuBLAS do not
// guarantee this: cudnnConvolutionBiasActivationForward() only accepts CUDNN_NOT_PROPAGATE_NAN.
absl::Status Apply(Context& context, const BiasRelu& what, void* y);

// Computes the gradients of bias and relu. y and dy [rows, channels] have one type and are aligned to 256
// bytes; biases and their gradients [channels] are floats at any address.
class ReluBias {
 public:
  static absl::StatusOr<std::unique_ptr<ReluBias>> Create(Context& context, ElementType type, int64_t rows,
                                                          int64_t channels, bool relu);
  virtual ~ReluBias() = default;
  // With a relu, dy becomes 0 where y is 0. `dbias`, unless it is null, becomes the column sums of dy.
  virtual absl::Status Backward(const void* y, void* dy, float* dbias) = 0;
};

}  // namespace cairn::kernels::cuda
