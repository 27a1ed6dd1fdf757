// Copies between element types and orders of a kernel's axes.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "kernels/cuda/context.h"
#include "kernels/device.h"
#include "kernels/ops.h"

namespace cairn::kernels::cuda {

// `count` floats at any address, as elements of `type`.
absl::Status FromFloats(Context& context, const float* from, ElementType type, void* to, int64_t count);

// A kernel [places, c, f] in floats at any address, as [f, places, c] of `type`: cuDNN's order for images
// whose channels are last.
absl::Status KernelToCudnn(Context& context, const float* from, ElementType type, void* to, int64_t places,
                           int64_t c, int64_t f);
// And back.
absl::Status KernelFromCudnn(Context& context, ElementType type, const void* from, float* to, int64_t places,
                             int64_t c, int64_t f);

// An input of a linear map as elements of the device's type: itself, or a copy. Likewise its gradient.
class ConvertedInput {
 public:
  static absl::StatusOr<ConvertedInput> Create(Context& context, const TensorDesc& input,
                                               bool needs_input_gradient);
  // The map's own view of x, and of dx, which may be null.
  absl::Status Convert(const float* x);
  const float* Of(const float* x) const { return value_ == nullptr ? x : value_->data(); }  // after Convert()
  float* GradientOf(float* dx) const {
    return gradient_ == nullptr || dx == nullptr ? dx : gradient_->data();
  }
  absl::Status ConvertGradient(float* dx);

 private:
  // Null where the type is the device's.
  std::unique_ptr<Reorder> there_, back_;
  std::unique_ptr<DeviceMemory> value_, gradient_;
};

}  // namespace cairn::kernels::cuda
