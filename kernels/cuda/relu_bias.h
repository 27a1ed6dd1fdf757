// What stands behind a linear map, where no library does it on the way: the bias added to rows, and the way
// of a gradient back through relu and bias.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/cuda/context.h"
#include "kernels/device.h"

namespace cairn::kernels::cuda {

// Adds the bias to each row of y [rows, channels].
absl::Status AddBias(Context& context, ElementType type, int64_t rows, int64_t channels, const float* bias,
                     void* y);

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
