// The epilogue of a linear map: bias and relu, and the gradients of both.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/cuda/context.h"
#include "kernels/device.h"

namespace cairn::kernels::cuda {

// The epilogue of a linear map with the sums y [rows, channels]: y + bias, then max(x, 0) if `relu`.
struct BiasRelu {
  ElementType type = ElementType::kFloat32;
  int64_t rows = 0, channels = 0;
  const float* bias = nullptr;  // [channels] at any address, or null
  bool relu = false;
};
// In place. NaN passes the relu, which the fused ones of cuDNN and cuBLAS do not promise:
// cudnnConvolutionBiasActivationForward() takes CUDNN_NOT_PROPAGATE_NAN alone.
absl::Status Apply(Context& context, const BiasRelu& what, void* y);

// For y and dy [rows, channels] of one type, 256-byte aligned; biases and their gradients [channels] in
// floats at any address.
class ReluBias {
 public:
  static absl::StatusOr<std::unique_ptr<ReluBias>> Create(Context& context, ElementType type, int64_t rows,
                                                          int64_t channels, bool relu);
  virtual ~ReluBias() = default;
  // Where there is a relu, dy becomes 0 in the places where y is. `dbias`, unless it is null, the sums of the
  // columns of dy.
  virtual absl::Status Backward(const void* y, void* dy, float* dbias) = 0;
};

}  // namespace cairn::kernels::cuda
