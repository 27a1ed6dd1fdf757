// Dense layers by oneDNN's inner product. The kernel stays in the caller's format if oneDNN has fast code for it, so
// that a large kernel is never copied (reordering it in every step costs a third of the speed).
#include "absl/strings/str_cat.h"
#include "common/core/status.h"
#include "kernels/cpu/linear/batch_sums.h"
#include "kernels/cpu/linear/linear_part.h"
#include "kernels/cpu/onednn.h"
#include "kernels/cpu/ops.h"

namespace cairn::kernels::cpu {
namespace {

class DenseGradient final : public KernelGradient {
 public:
  // The gradient by the kernel: x^T dy or, for a kernel that is transposed, dy^T x.
  static onednn::TransposedProduct ProductOf(const DenseParams& params) {
    const int64_t inputs = params.input.shape[1], units = params.units;
    const int64_t m = params.transposed ? units : inputs, n = params.transposed ? inputs : units;
    return {
        .m = m, .n = n, .k = params.input.shape[0], .a = {nullptr, m}, .b = {nullptr, n}, .c = {nullptr, n}};
  }

  DenseGradient(onednn::Context& context, const DenseParams& params)
      : context_(context),
        batch_(params.input.shape[0]),
        units_(params.units),
        transposed_(params.transposed),
        product_(context, ProductOf(params)) {}

  absl::Status Run(const float* source, const float* dy, float* dkernel, float* dbias) override {
    if (dbias != nullptr) SumRows(context_, {dy, units_}, batch_, units_, dbias);
    return product_.Run(transposed_ ? dy : source, transposed_ ? source : dy, dkernel);
  }

 private:
  onednn::Context& context_;
  const int64_t batch_, units_;
  const bool transposed_;
  TransposedMultiplier product_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<LinearOp>> MakeDense(onednn::Context& context, const DenseParams& params) {
  context.UseThreads();
  const Shape& input_shape = params.input.shape;
  if (input_shape.rank() != 2 || params.input.layout != Layout::kRowMajor || input_shape.num_elements() < 1 ||
      params.units < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("a dense layer of ", params.units, " units over ", params.input.ToString(),
                     ": expected [batch, inputs], row-major, sizes of at least 1"));
  }
  onednn::InnerProductArgs args = {.batch = input_shape[0],
                                   .inputs = input_shape[1],
                                   .units = params.units,
                                   .use_bias = params.use_bias,
                                   .kernel = params.transposed ? onednn::Format::oi : onednn::Format::io};
  const TensorDesc output = {.shape = {args.batch, args.units}};
  const Owned owned = {.source = onednn::ActivationDesc(params.input),
                       .kernel = onednn::Describe({args.units, args.inputs}, args.kernel),
                       .destination = onednn::ActivationDesc(output)};
  const auto make = [&](ElementType operands) -> absl::StatusOr<OnednnLinear::Passes> {
    args.operands = operands;
    CAIRN_ASSIGN_OR_RETURN(const auto forward, MakeInnerProductForward(context, args));
    OnednnLinear::Passes passes = {.forward = forward};
    CAIRN_ASSIGN_OR_RETURN(passes.weights, MakeInnerProductBackwardWeights(context, args, forward));
    if (params.needs_input_gradient) {
      CAIRN_ASSIGN_OR_RETURN(passes.input, MakeInnerProductBackwardData(context, args, forward));
    }
    return passes;
  };
  CAIRN_ASSIGN_OR_RETURN(OnednnLinear::Passes passes, MakePasses(context, make));
  if (context.operands() == ElementType::kFloat32 && passes.forward.src_desc(0) == owned.source &&
      TransposedMultiplier::SpeedsUp(DenseGradient::ProductOf(params)))
    passes.own_weights = std::make_unique<DenseGradient>(context, params);
  return OnednnLinear::Create(context, output, owned, std::move(passes),
                              {.use_bias = params.use_bias, .relu = params.relu});
}

}  // namespace cairn::kernels::cpu
