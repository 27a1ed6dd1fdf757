#include "nn/layers/typed_parameter.h"

#include "common/core/status.h"

namespace cairn::nn {

absl::StatusOr<TypedParameter> TypedParameter::Create(const kernels::TensorDesc& desc,
                                                      kernels::Device& device) {
  TypedParameter made;
  if (desc.is_plain()) return made;
  made.device_ = &device;
  const kernels::TensorDesc plain = {.shape = desc.shape};
  CAIRN_ASSIGN_OR_RETURN(made.convert_, device.ops().MakeReorder(plain, desc));
  CAIRN_ASSIGN_OR_RETURN(made.convert_back_, device.ops().MakeReorder(desc, plain));
  CAIRN_ASSIGN_OR_RETURN(made.converted_, device.Allocate(desc.num_floats(), "converted variable"));
  CAIRN_ASSIGN_OR_RETURN(made.gradient_, device.Allocate(desc.num_floats(), "gradient of a variable"));
  CAIRN_ASSIGN_OR_RETURN(made.floats_, device.Allocate(plain.num_floats(), "variable"));
  return made;
}

absl::StatusOr<const float*> TypedParameter::Load(const float* variable) {
  values_ = variable;
  if (convert_ == nullptr) return values_;
  CAIRN_RETURN_IF_ERROR(device_->CopyOnDevice(variable, floats_->data(), floats_->num_floats()));
  CAIRN_RETURN_IF_ERROR(convert_->Run(floats_->data(), converted_->data()));
  values_ = converted_->data();
  return values_;
}

absl::Status TypedParameter::StoreGradient(float* gradient) {
  if (convert_back_ == nullptr) return absl::OkStatus();
  CAIRN_RETURN_IF_ERROR(convert_back_->Run(gradient_->data(), floats_->data()));
  return device_->CopyOnDevice(floats_->data(), gradient, floats_->num_floats());
}

}  // namespace cairn::nn
