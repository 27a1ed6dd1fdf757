#include "kernels/cpu/linear_part.h"

#include <algorithm>
#include <utility>

#include "common/core/status.h"

namespace cairn::kernels::cpu {

using Direction = onednn::Staging::Direction;

LinearPart::LinearPart(onednn::Primitive primitive, Operand source, Operand kernel, Operand destination)
    : primitive_(std::move(primitive)),
      operands_{std::move(source), std::move(kernel), std::move(destination)} {}

absl::StatusOr<LinearPart::Operand> LinearPart::MakeOperand(onednn::Context& context,
                                                            const onednn::MemoryDesc& owner,
                                                            const onednn::Primitive::Argument& argument) {
  const bool out = argument.index == DNNL_ARG_DST || argument.index == DNNL_ARG_DIFF_SRC ||
                   argument.index == DNNL_ARG_DIFF_WEIGHTS;
  CAIRN_ASSIGN_OR_RETURN(
      auto staging,
      onednn::Staging::Create(context, out ? Direction::kOut : Direction::kIn, owner, argument.desc));
  return Operand{std::move(staging), out};
}

absl::StatusOr<LinearPart> LinearPart::Create(onednn::Context& context, const dnnl::primitive_desc_base& desc,
                                              const Owned& owned, const onednn::Primitive::Argument& source,
                                              const onednn::Primitive::Argument& kernel,
                                              const onednn::Primitive::Argument& destination,
                                              const onednn::Primitive::Argument& bias) {
  CAIRN_ASSIGN_OR_RETURN(auto primitive,
                         onednn::Primitive::Create(context, desc, {source, kernel, destination, bias}));
  CAIRN_ASSIGN_OR_RETURN(auto source_operand, MakeOperand(context, owned.source, source));
  CAIRN_ASSIGN_OR_RETURN(auto kernel_operand, MakeOperand(context, owned.kernel, kernel));
  CAIRN_ASSIGN_OR_RETURN(auto destination_operand, MakeOperand(context, owned.destination, destination));
  return LinearPart(std::move(primitive), std::move(source_operand), std::move(kernel_operand),
                    std::move(destination_operand));
}

absl::Status LinearPart::Run(const float* source, const float* kernel, const float* destination,
                             const float* bias) {
  float* const owners[3] = {const_cast<float*>(source), const_cast<float*>(kernel),
                            const_cast<float*>(destination)};
  const float* arguments[3];
  for (int i = 0; i < 3; ++i) {
    if (operands_[i].out) {
      arguments[i] = operands_[i].staging.Target(owners[i]);
    } else {
      CAIRN_ASSIGN_OR_RETURN(arguments[i], operands_[i].staging.Load(owners[i]));
    }
  }
  CAIRN_RETURN_IF_ERROR(primitive_.Run({arguments[0], arguments[1], arguments[2], bias}));
  for (int i = 0; i < 3; ++i) {
    if (operands_[i].out) CAIRN_RETURN_IF_ERROR(operands_[i].staging.Store(owners[i]));
  }
  return absl::OkStatus();
}

namespace {

// Clears the padding channels. On some processors oneDNN leaves sums of 0 * x there, which are NaN where x is
// not finite.
void ClearPaddingChannels(const TensorDesc& desc, float* y) {
  const int64_t block = BlockOf(desc.layout);
  if (block == 1 || desc.shape[3] % block == 0) return;
  const int64_t channels = desc.shape[3] % block, pixels = desc.shape[1] * desc.shape[2];
  const int64_t floats = desc.num_floats() / desc.shape[0];
  for (int64_t n = 0; n < desc.shape[0]; ++n) {
    float* last = y + (n + 1) * floats - pixels * block;
    for (int64_t pixel = 0; pixel < pixels; ++pixel, last += block) {
      std::fill(last + channels, last + block, 0.0f);
    }
  }
}

}  // namespace

absl::Status OnednnLinear::Forward(const float* x, const float* kernel, const float* bias, float* y) {
  CAIRN_RETURN_IF_ERROR(parts_.forward.Run(x, kernel, y, bias));
  ClearPaddingChannels(output_, y);
  if (parts_.relu.has_value()) parts_.relu->Forward(y);
  return absl::OkStatus();
}

absl::Status OnednnLinear::Backward(const float* x, const float* kernel, const float* y, float* dy, float* dx,
                                    float* dkernel, float* dbias) {
  if (parts_.relu.has_value()) parts_.relu->Backward(y, dy);
  CAIRN_RETURN_IF_ERROR(parts_.weights.Run(x, dkernel, dy, dbias));
  return dx == nullptr ? absl::OkStatus() : BackwardInput(kernel, dy, dx);
}

absl::Status OnednnLinear::BackwardInput(const float* kernel, const float* dy, float* dx) {
  return parts_.input.has_value() ? parts_.input->Run(dx, kernel, dy, nullptr) : absl::OkStatus();
}

}  // namespace cairn::kernels::cpu
