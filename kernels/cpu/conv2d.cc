// Convolution by oneDNN, which chooses the formats of the activations and of the kernel. The output keeps the
// chosen format if that is one of our layouts, so that a chain of layers is never reordered. The kernel is
// reordered from and to Keras' [kh, kw, c, filters] on every run (measured: 3 % of a step).
#include <optional>
#include <utility>

#include "common/core/status.h"
#include "kernels/cpu/linear_part.h"
#include "kernels/cpu/onednn.h"
#include "kernels/cpu/ops.h"
#include "kernels/cpu/pooled_conv2d.h"
#include "kernels/window.h"

namespace cairn::kernels::cpu {
namespace {

using onednn::MemoryDesc;

onednn::ConvolutionArgs ArgsOf(const Conv2DParams& params, const Shape& output) {
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

}  // namespace

absl::StatusOr<std::unique_ptr<LinearOp>> MakeConv2D(onednn::Context& context, const Conv2DParams& params) {
  if (params.pool_height != 0) return MakePooledConv2D(context, params);
  context.UseThreads();
  CAIRN_ASSIGN_OR_RETURN(const Shape shape, OutputShape(params));
  const onednn::ConvolutionArgs args = ArgsOf(params, shape);

  CAIRN_ASSIGN_OR_RETURN(const auto forward_desc, MakeConvolutionForward(context, args));
  TensorDesc output = {
      .shape = shape, .layout = onednn::LayoutOf(forward_desc.dst_desc(), shape).value_or(Layout::kRowMajor)};
  const Owned owned = {.source = onednn::ActivationDesc(params.input),
                       .kernel = onednn::Describe(
                           args.kernel, params.groups > 1 ? onednn::Format::hwigo : onednn::Format::hwio),
                       .destination = onednn::ActivationDesc(output)};
  CAIRN_ASSIGN_OR_RETURN(
      LinearPart forward,
      LinearPart::Create(context, forward_desc, owned, {DNNL_ARG_SRC, forward_desc.src_desc()},
                         {DNNL_ARG_WEIGHTS, forward_desc.weights_desc()},
                         {DNNL_ARG_DST, forward_desc.dst_desc()}, {DNNL_ARG_BIAS, forward_desc.bias_desc()}));

  CAIRN_ASSIGN_OR_RETURN(const auto weights_desc,
                         MakeConvolutionBackwardWeights(context, args, forward_desc));
  CAIRN_ASSIGN_OR_RETURN(
      LinearPart weights,
      LinearPart::Create(
          context, weights_desc, owned, {DNNL_ARG_SRC, weights_desc.src_desc()},
          {DNNL_ARG_DIFF_WEIGHTS, weights_desc.diff_weights_desc()},
          {DNNL_ARG_DIFF_DST, weights_desc.diff_dst_desc()},
          {DNNL_ARG_DIFF_BIAS, params.use_bias ? weights_desc.diff_bias_desc() : MemoryDesc()}));

  std::optional<LinearPart> input;
  if (params.needs_input_gradient) {
    CAIRN_ASSIGN_OR_RETURN(const auto input_desc, MakeConvolutionBackwardData(context, args, forward_desc));
    CAIRN_ASSIGN_OR_RETURN(
        input,
        LinearPart::Create(context, input_desc, owned, {DNNL_ARG_DIFF_SRC, input_desc.diff_src_desc()},
                           {DNNL_ARG_WEIGHTS, input_desc.weights_desc()},
                           {DNNL_ARG_DIFF_DST, input_desc.diff_dst_desc()}, {DNNL_ARG_BIAS, MemoryDesc()}));
  }

  std::optional<ReluInPlace> relu;
  if (params.relu) relu.emplace(context, output.num_floats());
  return std::make_unique<OnednnLinear>(
      std::move(output),
      OnednnLinear::Parts{std::move(forward), std::move(weights), std::move(input), std::move(relu)});
}

}  // namespace cairn::kernels::cpu
