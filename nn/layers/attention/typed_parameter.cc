#include "nn/layers/attention/typed_parameter.h"

#include "common/core/status.h"

namespace cairn::nn {

absl::StatusOr<TypedParameter> TypedParameter::Create(const kernels::TensorDesc& desc,
                                                      kernels::Device& device) {
  TypedParameter made;
  if (desc.is_plain()) return made;
  const kernels::TensorDesc plain = {.shape = desc.shape};
  CAIRN_ASSIGN_OR_RETURN(made.convert_, device.ops().MakeReorder(plain, desc));
  CAIRN_ASSIGN_OR_RETURN(made.convert_back_, device.ops().MakeReorder(desc, plain));
  CAIRN_ASSIGN_OR_RETURN(made.converted_, device.Allocate(desc.num_floats(), "converted variable"));
  CAIRN_ASSIGN_OR_RETURN(made.gradient_, device.Allocate(desc.num_floats(), "gradient of a variable"));
  return made;
}

absl::StatusOr<const float*> TypedParameter::Load(const float* variable) {
  values_ = variable;
  if (convert_ == nullptr) return values_;
  CAIRN_RETURN_IF_ERROR(convert_->Run(variable, converted_->data()));
  values_ = converted_->data();
  return values_;
}

absl::Status TypedParameter::StoreGradient(float* gradient) {
  return convert_back_ == nullptr ? absl::OkStatus() : convert_back_->Run(gradient_->data(), gradient);
}

}  // namespace cairn::nn
