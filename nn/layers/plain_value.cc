#include "nn/layers/plain_value.h"

#include "common/core/status.h"

namespace cairn::nn {

absl::StatusOr<std::unique_ptr<PlainCopy>> PlainCopy::Create(const kernels::TensorDesc& value,
                                                             kernels::Device& device) {
  auto copy = std::unique_ptr<PlainCopy>(new PlainCopy(value.num_floats(), device));
  if (value.is_plain()) return copy;
  const kernels::TensorDesc plain = {.shape = value.shape};
  CAIRN_ASSIGN_OR_RETURN(copy->to_, device.ops().MakeReorder(value, plain));
  CAIRN_ASSIGN_OR_RETURN(copy->from_, device.ops().MakeReorder(plain, value));
  return copy;
}

absl::Status PlainCopy::ToPlain(const float* value, float* plain) {
  return to_ == nullptr ? device_.CopyOnDevice(value, plain, floats_) : to_->Run(value, plain);
}

absl::Status PlainCopy::FromPlain(const float* plain, float* value) {
  return from_ == nullptr ? device_.CopyOnDevice(plain, value, floats_) : from_->Run(plain, value);
}

absl::Status CheckCanAddPenalty(const kernels::Device& device) {
  if (device.compute_type() != kernels::ElementType::kFloat16) return absl::OkStatus();
  return absl::UnimplementedError(
      "adds a penalty to the loss, which is not supported in float16: use bfloat16, tf32 or float32");
}

}  // namespace cairn::nn
