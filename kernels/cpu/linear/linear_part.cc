#include "kernels/cpu/linear/linear_part.h"

#include <algorithm>
#include <utility>

#include "common/core/status.h"

namespace cairn::kernels::cpu {

using Direction = onednn::Staging::Direction;

namespace {
constexpr int kKernel = 1;  // the operand's index
}  // namespace

LinearPart::LinearPart(onednn::Primitive primitive, Operand source, Operand kernel, Operand destination)
    : primitive_(std::move(primitive)),
      operands_{std::move(source), std::move(kernel), std::move(destination)} {}

absl::StatusOr<LinearPart> LinearPart::Create(onednn::Context& context, Pass pass,
                                              const dnnl::primitive_desc_base& desc, const Owned& owned,
                                              bool use_bias, const LinearPart* before) {
  using Argument = onednn::Primitive::Argument;
  const bool forward = pass == Pass::kForward;
  const bool of_source = pass == Pass::kBackwardData, of_kernel = pass == Pass::kBackwardWeights;
  const Argument source = of_source ? Argument{DNNL_ARG_DIFF_SRC, desc.diff_src_desc(0)}
                                    : Argument{DNNL_ARG_SRC, desc.src_desc(0)};
  const Argument kernel = of_kernel ? Argument{DNNL_ARG_DIFF_WEIGHTS, desc.diff_weights_desc(0)}
                                    : Argument{DNNL_ARG_WEIGHTS, desc.weights_desc(0)};
  const Argument destination =
      forward ? Argument{DNNL_ARG_DST, desc.dst_desc(0)} : Argument{DNNL_ARG_DIFF_DST, desc.diff_dst_desc(0)};
  Argument bias = {DNNL_ARG_BIAS, onednn::MemoryDesc()};
  if (use_bias && forward) bias.desc = desc.weights_desc(1);
  if (use_bias && of_kernel) bias = {DNNL_ARG_DIFF_BIAS, desc.diff_weights_desc(1)};
  CAIRN_ASSIGN_OR_RETURN(auto primitive,
                         onednn::Primitive::Create(context, desc, {source, kernel, destination, bias}));

  const auto make_operand = [&](int index, const onednn::MemoryDesc& owner, const Argument& argument,
                                bool out) -> absl::StatusOr<Operand> {
    const Operand* const same = before == nullptr ? nullptr : &before->operands_[index];
    if (same != nullptr && index != kKernel && !out && !same->out && same->staging->copies() &&
        same->desc == argument.desc) {
      return Operand{.staging = same->staging, .desc = argument.desc, .loaded = true};
    }
    // A later part may use a copy of the source or of the destination again. Copies of kernels and of their gradients
    // are as large as all variables: each exists only while its part runs.
    const auto memory = index == kKernel ? onednn::Staging::Memory::kShared : onednn::Staging::Memory::kOwn;
    CAIRN_ASSIGN_OR_RETURN(
        auto staging, onednn::Staging::Create(context, out ? Direction::kOut : Direction::kIn, memory, owner,
                                              argument.desc));
    return Operand{
        .staging = std::make_shared<onednn::Staging>(std::move(staging)), .desc = argument.desc, .out = out};
  };
  CAIRN_ASSIGN_OR_RETURN(auto source_operand, make_operand(0, owned.source, source, of_source));
  CAIRN_ASSIGN_OR_RETURN(auto kernel_operand, make_operand(kKernel, owned.kernel, kernel, of_kernel));
  CAIRN_ASSIGN_OR_RETURN(auto destination_operand, make_operand(2, owned.destination, destination, forward));
  return LinearPart(std::move(primitive), std::move(source_operand), std::move(kernel_operand),
                    std::move(destination_operand));
}

absl::Status LinearPart::Run(const float* source, const float* kernel, const float* destination,
                             const float* bias) {
  float* const owners[3] = {const_cast<float*>(source), const_cast<float*>(kernel),
                            const_cast<float*>(destination)};
  const float* arguments[3];
  for (int i = 0; i < 3; ++i) {
    onednn::Staging& staging = *operands_[i].staging;
    if (operands_[i].out || operands_[i].loaded) {
      arguments[i] = staging.Target(owners[i]);
    } else {
      CAIRN_ASSIGN_OR_RETURN(arguments[i], staging.Load(owners[i]));
    }
  }
  CAIRN_RETURN_IF_ERROR(primitive_.Run({arguments[0], arguments[1], arguments[2], bias}));
  for (int i = 0; i < 3; ++i) {
    if (operands_[i].out) CAIRN_RETURN_IF_ERROR(operands_[i].staging->Store(owners[i]));
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

bool OnednnLinear::Passes::any_reference() const {
  return onednn::IsReference(forward) || onednn::IsReference(weights) ||
         (input.has_value() && onednn::IsReference(*input));
}

absl::StatusOr<OnednnLinear::Passes> MakePasses(
    const onednn::Context& context,
    absl::FunctionRef<absl::StatusOr<OnednnLinear::Passes>(ElementType operands)> make) {
  if (context.operands() != ElementType::kFloat32) {
    auto passes = make(context.operands());
    if (passes.ok() && !passes->any_reference()) return passes;
  }
  return make(ElementType::kFloat32);
}

absl::StatusOr<std::unique_ptr<LinearOp>> OnednnLinear::Create(onednn::Context& context,
                                                               const TensorDesc& output, const Owned& owned,
                                                               Passes passes, const Options& options) {
  CAIRN_ASSIGN_OR_RETURN(
      auto forward, LinearPart::Create(context, Pass::kForward, passes.forward, owned, options.use_bias));
  std::unique_ptr<OnednnLinear> op(
      new OnednnLinear(output, std::move(forward), std::move(passes.own_weights)));
  if (op->own_weights_ == nullptr) {
    CAIRN_ASSIGN_OR_RETURN(op->weights_,
                           LinearPart::Create(context, Pass::kBackwardWeights, passes.weights, owned,
                                              options.use_bias, /*before=*/&op->forward_));
  }
  if (passes.input.has_value()) {
    const LinearPart* const before = op->weights_.has_value() ? &*op->weights_ : nullptr;
    CAIRN_ASSIGN_OR_RETURN(op->input_, LinearPart::Create(context, Pass::kBackwardData, *passes.input, owned,
                                                          options.use_bias, before));
  }
  if (options.relu) op->relu_.emplace(context, output.num_floats());
  return op;
}

absl::Status OnednnLinear::Forward(const float* x, const float* kernel, const float* bias, float* y) {
  CAIRN_RETURN_IF_ERROR(forward_.Run(x, kernel, y, bias));
  ClearPaddingChannels(output_, y);
  if (relu_.has_value()) relu_->Forward(y);
  return absl::OkStatus();
}

absl::Status OnednnLinear::Backward(const float* x, const float* kernel, const float* y, float* dy, float* dx,
                                    float* dkernel, float* dbias) {
  if (relu_.has_value()) relu_->Backward(y, dy);
  if (own_weights_ != nullptr) {
    CAIRN_RETURN_IF_ERROR(own_weights_->Run(forward_.source(x), dy, dkernel, dbias));
  } else {
    CAIRN_RETURN_IF_ERROR(weights_->Run(x, dkernel, dy, dbias));
  }
  return dx == nullptr ? absl::OkStatus() : BackwardInput(kernel, dy, dx);
}

absl::Status OnednnLinear::BackwardInput(const float* kernel, const float* dy, float* dx) {
  return input_.has_value() ? input_->Run(dx, kernel, dy, nullptr) : absl::OkStatus();
}

}  // namespace cairn::kernels::cpu
