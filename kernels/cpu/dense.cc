// Dense layers by oneDNN's inner product. The kernel stays in Keras' format [inputs, units] if oneDNN has
// fast code for it, so that a large kernel is never copied (reordering it in every step costs a third of the
// speed).
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/core/status.h"
#include "kernels/cpu/linear_part.h"
#include "kernels/cpu/onednn.h"
#include "kernels/cpu/ops.h"

namespace cairn::kernels::cpu {
using onednn::MemoryDesc;

absl::StatusOr<std::unique_ptr<LinearOp>> MakeDense(onednn::Context& context, const DenseParams& params) {
  context.UseThreads();
  const Shape& input_shape = params.input.shape;
  if (input_shape.rank() != 2 || params.input.layout != Layout::kRowMajor || input_shape.num_elements() < 1 ||
      params.units < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("a dense layer of ", params.units, " units over ", params.input.ToString(),
                     ": expected [batch, inputs], row-major, sizes of at least 1"));
  }
  const onednn::InnerProductArgs args = {
      .batch = input_shape[0], .inputs = input_shape[1], .units = params.units, .use_bias = params.use_bias};
  TensorDesc output = {.shape = {args.batch, args.units}};
  const Owned owned = {.source = onednn::ActivationDesc(params.input),
                       .kernel = onednn::Describe({args.units, args.inputs}, onednn::Format::io),
                       .destination = onednn::ActivationDesc(output)};

  CAIRN_ASSIGN_OR_RETURN(const auto forward_desc, MakeInnerProductForward(context, args));
  CAIRN_ASSIGN_OR_RETURN(
      LinearPart forward,
      LinearPart::Create(context, forward_desc, owned, {DNNL_ARG_SRC, forward_desc.src_desc()},
                         {DNNL_ARG_WEIGHTS, forward_desc.weights_desc()},
                         {DNNL_ARG_DST, forward_desc.dst_desc()}, {DNNL_ARG_BIAS, forward_desc.bias_desc()}));
  CAIRN_ASSIGN_OR_RETURN(const auto weights_desc,
                         MakeInnerProductBackwardWeights(context, args, forward_desc));
  CAIRN_ASSIGN_OR_RETURN(
      LinearPart weights,
      LinearPart::Create(
          context, weights_desc, owned, {DNNL_ARG_SRC, weights_desc.src_desc()},
          {DNNL_ARG_DIFF_WEIGHTS, weights_desc.diff_weights_desc()},
          {DNNL_ARG_DIFF_DST, weights_desc.diff_dst_desc()},
          {DNNL_ARG_DIFF_BIAS, params.use_bias ? weights_desc.diff_bias_desc() : MemoryDesc()}));
  std::optional<LinearPart> input;
  if (params.needs_input_gradient) {
    CAIRN_ASSIGN_OR_RETURN(const auto input_desc, MakeInnerProductBackwardData(context, args, forward_desc));
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
