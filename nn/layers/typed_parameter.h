// A variable of a layer in the element type of an activation, for ops whose inputs have one type.
#pragma once

#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/device.h"
#include "kernels/ops.h"

namespace cairn::nn {

class TypedParameter {
 public:
  // `desc`: the variable's shape, row-major, in the type of the activation. `device` must outlive the object.
  static absl::StatusOr<TypedParameter> Create(const kernels::TensorDesc& desc, kernels::Device& device);

  // The values in that type: `variable` itself if that is float32.
  absl::StatusOr<const float*> Load(const float* variable);
  // The values of the last Load().
  const float* values() const { return values_; }
  // An op writes the gradient to Target(); StoreGradient() then converts it if necessary.
  float* Target(float* gradient) { return gradient_ == nullptr ? gradient : gradient_->data(); }
  absl::Status StoreGradient(float* gradient);

 private:
  const float* values_ = nullptr;
  // Null for float32.
  kernels::Device* device_ = nullptr;
  std::unique_ptr<kernels::Reorder> convert_, convert_back_;
  std::unique_ptr<kernels::DeviceMemory> converted_, gradient_;
  // The variable or its gradient on the way, since they need not be aligned as conversions need it.
  std::unique_ptr<kernels::DeviceMemory> floats_;
};

}  // namespace cairn::nn
