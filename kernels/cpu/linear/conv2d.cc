// Convolution by oneDNN, which chooses the formats of the activations and of the kernel. The output keeps the
// chosen format if that is one of our layouts, so that a chain of layers is never reordered. The kernel is
// reordered from and to Keras' [kh, kw, c, filters] on every run (measured: 3 % of a step).
#include <utility>

#include "common/core/status.h"
#include "kernels/cpu/linear/depthwise_gradient.h"
#include "kernels/cpu/linear/linear_part.h"
#include "kernels/cpu/linear/pooled_conv2d.h"
#include "kernels/cpu/onednn.h"
#include "kernels/cpu/ops.h"
#include "kernels/window.h"

namespace cairn::kernels::cpu {

onednn::ConvolutionArgs ConvolutionArgsOf(const Conv2DParams& params, const Shape& output) {
  const Shape& input = params.input.shape;
  const int64_t groups = params.groups;
  const Window rows = MakeWindow(input[1], Dilated(params.kernel_height, params.dilation_height),
                                 params.stride_height, params.padding);
  const Window columns = MakeWindow(input[2], Dilated(params.kernel_width, params.dilation_width),
                                    params.stride_width, params.padding);
  onednn::Dims kernel = {params.filters / groups, input[3] / groups, params.kernel_height,
                         params.kernel_width};
  if (groups > 1) kernel.insert(kernel.begin(), groups);
  return {.source = {input[0], input[3], input[1], input[2]},
          .kernel = std::move(kernel),
          .destination = {output[0], output[3], output[1], output[2]},
          .strides = {params.stride_height, params.stride_width},
          .dilations = {params.dilation_height - 1, params.dilation_width - 1},
          .pad_before = {rows.pad_before, columns.pad_before},
          .pad_after = {rows.pad_after, columns.pad_after},
          .use_bias = params.use_bias};
}

absl::StatusOr<std::unique_ptr<LinearOp>> MakeConv2D(onednn::Context& context, const Conv2DParams& params) {
  if (params.pool_height != 0) return MakePooledConv2D(context, params);
  context.UseThreads();
  CAIRN_ASSIGN_OR_RETURN(const Shape shape, OutputShape(params));
  onednn::ConvolutionArgs args = ConvolutionArgsOf(params, shape);
  const auto make = [&](ElementType operands) -> absl::StatusOr<OnednnLinear::Passes> {
    args.operands = operands;
    CAIRN_ASSIGN_OR_RETURN(const auto forward, MakeConvolutionForward(context, args));
    OnednnLinear::Passes passes = {.forward = forward};
    CAIRN_ASSIGN_OR_RETURN(passes.weights, MakeConvolutionBackwardWeights(context, args, forward));
    if (params.needs_input_gradient) {
      CAIRN_ASSIGN_OR_RETURN(passes.input, MakeConvolutionBackwardData(context, args, forward));
    }
    return passes;
  };
  // A depthwise convolution is bound by memory: rounded operands would only be more to write.
  const bool depthwise = params.groups > 1 && params.groups == params.input.shape[3];
  CAIRN_ASSIGN_OR_RETURN(OnednnLinear::Passes passes,
                         depthwise ? make(ElementType::kFloat32) : MakePasses(context, make));
  const TensorDesc output = {
      .shape = shape,
      .layout = onednn::LayoutOf(passes.forward.dst_desc(0), shape).value_or(Layout::kRowMajor)};
  const auto source = onednn::LayoutOf(passes.forward.src_desc(0), params.input.shape);
  if (depthwise && source.has_value() && DepthwiseGradient::Takes(params, *source, output.layout))
    passes.own_weights = std::make_unique<DepthwiseGradient>(context, args);
  const Owned owned = {.source = onednn::ActivationDesc(params.input),
                       .kernel = onednn::Describe(
                           args.kernel, params.groups > 1 ? onednn::Format::hwigo : onednn::Format::hwio),
                       .destination = onednn::ActivationDesc(output)};
  return OnednnLinear::Create(context, output, owned, std::move(passes),
                              {.use_bias = params.use_bias, .relu = params.relu});
}

}  // namespace cairn::kernels::cpu
