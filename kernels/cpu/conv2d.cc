// Convolution by oneDNN. It chooses the formats of the activations and of the kernel; the output keeps the
// chosen one where it is a layout of ours, so that a chain of layers is never reordered, and the kernel is
// reordered from and to Keras' [kh, kw, c, filters] on every run (measured: 3 % of a step).
#include <optional>
#include <utility>

#include "common/core/status.h"
#include "kernels/cpu/onednn.h"
#include "kernels/cpu/ops.h"
#include "kernels/window.h"

namespace cairn::kernels::cpu {
namespace {

using onednn::MemoryDesc;
using onednn::Primitive;
using onednn::Staging;
using Direction = onednn::Staging::Direction;

// One of the three primitives of a convolution, and what stands between it and the caller. Its arguments are
// source, kernel, destination and bias in this order, or the gradients in their places.
struct Part {
  Primitive primitive;
  Staging source, kernel, destination;
};

class OnednnConv2D final : public Conv2D {
 public:
  OnednnConv2D(TensorDesc output, Part forward, Part weights, std::optional<Part> input,
               std::optional<Primitive> relu)
      : output_(std::move(output)),
        forward_(std::move(forward)),
        weights_(std::move(weights)),
        input_(std::move(input)),
        relu_(std::move(relu)) {}

  const TensorDesc& output() const override { return output_; }

  absl::Status Forward(const float* x, const float* kernel, const float* bias, float* y) override {
    CAIRN_ASSIGN_OR_RETURN(const float* source, forward_.source.Load(x));
    CAIRN_ASSIGN_OR_RETURN(const float* weights, forward_.kernel.Load(kernel));
    CAIRN_RETURN_IF_ERROR(forward_.primitive.Run({source, weights, forward_.destination.Target(y), bias}));
    return forward_.destination.Store(y);
  }

  absl::Status Backward(const float* x, const float* kernel, const float* y, float* dy, float* dx,
                        float* dkernel, float* dbias) override {
    if (relu_.has_value()) CAIRN_RETURN_IF_ERROR(relu_->Run({y, dy, dy}));
    CAIRN_RETURN_IF_ERROR(BackwardWeights(x, dy, dkernel, dbias));
    return input_.has_value() ? BackwardInput(kernel, dy, dx) : absl::OkStatus();
  }

 private:
  absl::Status BackwardWeights(const float* x, const float* dy, float* dkernel, float* dbias) {
    CAIRN_ASSIGN_OR_RETURN(const float* source, weights_.source.Load(x));
    CAIRN_ASSIGN_OR_RETURN(const float* destination, weights_.destination.Load(dy));
    CAIRN_RETURN_IF_ERROR(
        weights_.primitive.Run({source, weights_.kernel.Target(dkernel), destination, dbias}));
    return weights_.kernel.Store(dkernel);
  }

  absl::Status BackwardInput(const float* kernel, const float* dy, float* dx) {
    CAIRN_ASSIGN_OR_RETURN(const float* weights, input_->kernel.Load(kernel));
    CAIRN_ASSIGN_OR_RETURN(const float* destination, input_->destination.Load(dy));
    CAIRN_RETURN_IF_ERROR(input_->primitive.Run({input_->source.Target(dx), weights, destination, nullptr}));
    return input_->source.Store(dx);
  }

  const TensorDesc output_;
  Part forward_;
  Part weights_;
  std::optional<Part> input_;      // absent when no input gradient is needed
  std::optional<Primitive> relu_;  // dy through the fused activation, in place
};

onednn::ConvolutionArgs ArgsOf(const Conv2DParams& params, const Shape& output) {
  const Shape& input = params.input.shape;
  const Window rows = MakeWindow(input[1], params.kernel_height, params.stride_height, params.padding);
  const Window columns = MakeWindow(input[2], params.kernel_width, params.stride_width, params.padding);
  return {.source = {input[0], input[3], input[1], input[2]},
          .kernel = {params.filters, input[3], params.kernel_height, params.kernel_width},
          .destination = {output[0], output[3], output[1], output[2]},
          .strides = {params.stride_height, params.stride_width},
          .pad_before = {rows.pad_before, columns.pad_before},
          .pad_after = {rows.pad_after, columns.pad_after},
          .use_bias = params.use_bias,
          .relu = params.activation == Activation::kRelu};
}

// The formats in which the caller keeps what a part reads and writes.
struct Owned {
  MemoryDesc source, kernel, destination;
};

absl::StatusOr<Part> MakePart(onednn::Context& context, const dnnl::primitive_desc_base& desc,
                              const Owned& owned, const Primitive::Argument& source,
                              const Primitive::Argument& kernel, const Primitive::Argument& destination,
                              const Primitive::Argument& bias) {
  const auto stage = [&](const MemoryDesc& owner, const Primitive::Argument& argument) {
    const bool out = argument.index == DNNL_ARG_DST || argument.index == DNNL_ARG_DIFF_SRC ||
                     argument.index == DNNL_ARG_DIFF_WEIGHTS;
    return Staging::Create(context, out ? Direction::kOut : Direction::kIn, owner, argument.desc);
  };
  CAIRN_ASSIGN_OR_RETURN(auto primitive,
                         Primitive::Create(context, desc, {source, kernel, destination, bias}));
  CAIRN_ASSIGN_OR_RETURN(auto source_staging, stage(owned.source, source));
  CAIRN_ASSIGN_OR_RETURN(auto kernel_staging, stage(owned.kernel, kernel));
  CAIRN_ASSIGN_OR_RETURN(auto destination_staging, stage(owned.destination, destination));
  return Part{std::move(primitive), std::move(source_staging), std::move(kernel_staging),
              std::move(destination_staging)};
}

}  // namespace

absl::StatusOr<std::unique_ptr<Conv2D>> MakeConv2D(onednn::Context& context, const Conv2DParams& params) {
  context.UseThreads();
  CAIRN_ASSIGN_OR_RETURN(const Shape shape, OutputShape(params));
  const onednn::ConvolutionArgs args = ArgsOf(params, shape);

  CAIRN_ASSIGN_OR_RETURN(const auto forward_desc, MakeConvolutionForward(context, args));
  TensorDesc output = {
      .shape = shape, .layout = onednn::LayoutOf(forward_desc.dst_desc(), shape).value_or(Layout::kRowMajor)};
  const Owned owned = {.source = onednn::ActivationDesc(params.input),
                       .kernel = onednn::Describe(args.kernel, onednn::Format::hwio),
                       .destination = onednn::ActivationDesc(output)};
  CAIRN_ASSIGN_OR_RETURN(
      Part forward,
      MakePart(context, forward_desc, owned, {DNNL_ARG_SRC, forward_desc.src_desc()},
               {DNNL_ARG_WEIGHTS, forward_desc.weights_desc()}, {DNNL_ARG_DST, forward_desc.dst_desc()},
               {DNNL_ARG_BIAS, forward_desc.bias_desc()}));

  CAIRN_ASSIGN_OR_RETURN(const auto weights_desc,
                         MakeConvolutionBackwardWeights(context, args, forward_desc));
  CAIRN_ASSIGN_OR_RETURN(
      Part weights,
      MakePart(context, weights_desc, owned, {DNNL_ARG_SRC, weights_desc.src_desc()},
               {DNNL_ARG_DIFF_WEIGHTS, weights_desc.diff_weights_desc()},
               {DNNL_ARG_DIFF_DST, weights_desc.diff_dst_desc()},
               {DNNL_ARG_DIFF_BIAS, params.use_bias ? weights_desc.diff_bias_desc() : MemoryDesc()}));

  std::optional<Part> input;
  if (params.needs_input_gradient) {
    CAIRN_ASSIGN_OR_RETURN(const auto input_desc, MakeConvolutionBackwardData(context, args, forward_desc));
    CAIRN_ASSIGN_OR_RETURN(
        input, MakePart(context, input_desc, owned, {DNNL_ARG_DIFF_SRC, input_desc.diff_src_desc()},
                        {DNNL_ARG_WEIGHTS, input_desc.weights_desc()},
                        {DNNL_ARG_DIFF_DST, input_desc.diff_dst_desc()}, {DNNL_ARG_BIAS, MemoryDesc()}));
  }

  std::optional<Primitive> relu;
  if (params.activation == Activation::kRelu) {
    CAIRN_ASSIGN_OR_RETURN(relu, onednn::MakeReluBackward(context, owned.destination));
  }
  return std::make_unique<OnednnConv2D>(std::move(output), std::move(forward), std::move(weights),
                                        std::move(input), std::move(relu));
}

}  // namespace cairn::kernels::cpu
