// Copies between element types and orders of a kernel's axes.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "kernels/cuda/runtime/context.h"
#include "kernels/device.h"
#include "kernels/ops.h"

namespace cairn::kernels::cuda {

// Converts `count` floats at any address to elements of `type`.
absl::Status FromFloats(Context& context, const float* from, ElementType type, void* to, int64_t count);

// Converts a kernel [places, c, f] of floats at any address to [f, places, c] of `type`: cuDNN's order for
// images whose channels are last.
absl::Status KernelToCudnn(Context& context, const float* from, ElementType type, void* to, int64_t places,
                           int64_t c, int64_t f);
// The reverse of KernelToCudnn().
absl::Status KernelFromCudnn(Context& context, ElementType type, const void* from, float* to, int64_t places,
                             int64_t c, int64_t f);

// An input of a linear map, converted to the device's type if necessary, and the gradient with respect to it.
class ConvertedInput {
 public:
  static absl::StatusOr<ConvertedInput> Create(Context& context, const TensorDesc& input,
                                               bool needs_input_gradient);
  // Converts x if necessary. The map then uses Of(x) and GradientOf(dx); dx may be null.
  absl::Status Convert(const float* x);
  const float* Of(const float* x) const { return value_ == nullptr ? x : value_->data(); }  // after Convert()
  float* GradientOf(float* dx) const {
    return gradient_ == nullptr || dx == nullptr ? dx : gradient_->data();
  }
  absl::Status ConvertGradient(float* dx);

 private:
  // Null if the input already has the device's type.
  std::unique_ptr<Reorder> there_, back_;
  std::unique_ptr<DeviceMemory> value_, gradient_;
};

}  // namespace cairn::kernels::cuda
