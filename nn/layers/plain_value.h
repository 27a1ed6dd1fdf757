// Plain versions of activations, row-major float32, for ops that need them, and ops that add penalties to the loss.
#pragma once

#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/device.h"
#include "kernels/ops.h"

namespace cairn::nn {

// Copies a value of one layout and type to plain memory, and its gradient back.
class PlainCopy {
 public:
  static absl::StatusOr<std::unique_ptr<PlainCopy>> Create(const kernels::TensorDesc& value,
                                                           kernels::Device& device);
  absl::Status ToPlain(const float* value, float* plain);
  absl::Status FromPlain(const float* plain, float* value);
  // Whether the value is plain itself.
  bool is_plain() const { return to_ == nullptr; }

 private:
  PlainCopy(int64_t floats, kernels::Device& device) : floats_(floats), device_(device) {}

  const int64_t floats_;
  kernels::Device& device_;
  std::unique_ptr<kernels::Reorder> to_, from_;  // null if the value is plain
};

// UNIMPLEMENTED on a device that computes in float16: the gradients of penalties are not scaled as the loss is.
absl::Status CheckCanAddPenalty(const kernels::Device& device);

}  // namespace cairn::nn
