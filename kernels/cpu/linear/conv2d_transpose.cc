// Transposed convolution with the convolution primitives of oneDNN: forward is the convolution's gradient
// with respect to its input, and backward is the convolution.
#include <optional>
#include <utility>
#include <vector>

#include "common/core/status.h"
#include "kernels/cpu/linear/linear_part.h"
#include "kernels/cpu/onednn.h"
#include "kernels/cpu/ops.h"
#include "kernels/window.h"

namespace cairn::kernels::cpu {
namespace {

class OnednnConv2DTranspose final : public LinearOp {
 public:
  OnednnConv2DTranspose(TensorDesc output, LinearPart forward, LinearPart weights,
                        std::optional<LinearPart> input)
      : output_(std::move(output)),
        forward_(std::move(forward)),
        weights_(std::move(weights)),
        input_(std::move(input)) {}

  const TensorDesc& output() const override { return output_; }

  absl::Status Forward(const float* x, const float* kernel, const float* bias, float* y) override {
    CAIRN_RETURN_IF_ERROR(forward_.Run(y, kernel, x, nullptr));
    if (bias == nullptr) return absl::OkStatus();
    const int64_t filters = output_.shape[3], pixels = output_.shape.num_elements() / filters;
    for (int64_t pixel = 0; pixel < pixels; ++pixel) {
      for (int64_t f = 0; f < filters; ++f) y[pixel * filters + f] += bias[f];
    }
    return absl::OkStatus();
  }

  absl::Status Backward(const float* x, const float* kernel, const float* /*y*/, float* dy, float* dx,
                        float* dkernel, float* dbias) override {
    CAIRN_RETURN_IF_ERROR(weights_.Run(dy, dkernel, x, nullptr));
    if (dbias != nullptr) SumRows(dy, dbias);
    if (!input_.has_value()) return absl::OkStatus();
    return input_->Run(dy, kernel, dx, nullptr);
  }

 private:
  void SumRows(const float* dy, float* dbias) const {
    const int64_t filters = output_.shape[3], pixels = output_.shape.num_elements() / filters;
    for (int64_t f = 0; f < filters; ++f) {
      double sum = 0;
      for (int64_t pixel = 0; pixel < pixels; ++pixel) sum += dy[pixel * filters + f];
      dbias[f] = static_cast<float>(sum);
    }
  }

  const TensorDesc output_;  // row-major
  LinearPart forward_, weights_;
  std::optional<LinearPart> input_;  // absent if no input gradient is needed
};

}  // namespace

absl::StatusOr<std::unique_ptr<LinearOp>> MakeConv2DTranspose(onednn::Context& context,
                                                              const Conv2DTransposeParams& params) {
  context.UseThreads();
  CAIRN_ASSIGN_OR_RETURN(const Shape shape, OutputShape(params));
  onednn::ConvolutionArgs args = ConvolutionArgsOf(TransposedConvolution(params, shape), params.input.shape);
  const TensorDesc output = {.shape = shape};
  const Owned owned = {.source = onednn::ActivationDesc(output),
                       .kernel = onednn::Describe(args.kernel, onednn::Format::hwio),
                       .destination = onednn::ActivationDesc(params.input)};

  const auto make = [&](ElementType operands) -> absl::StatusOr<OnednnLinear::Passes> {
    args.operands = operands;
    CAIRN_ASSIGN_OR_RETURN(const auto convolution, MakeConvolutionForward(context, args));
    OnednnLinear::Passes passes = {.forward = convolution};
    CAIRN_ASSIGN_OR_RETURN(passes.weights, MakeConvolutionBackwardWeights(context, args, convolution));
    CAIRN_ASSIGN_OR_RETURN(passes.input, MakeConvolutionBackwardData(context, args, convolution));
    return passes;
  };
  CAIRN_ASSIGN_OR_RETURN(const OnednnLinear::Passes convolution, MakePasses(context, make));
  CAIRN_ASSIGN_OR_RETURN(auto forward, LinearPart::Create(context, Pass::kBackwardData, *convolution.input,
                                                          owned, /*use_bias=*/false));
  CAIRN_ASSIGN_OR_RETURN(auto weights, LinearPart::Create(context, Pass::kBackwardWeights,
                                                          convolution.weights, owned, /*use_bias=*/false));
  std::optional<LinearPart> backward;
  if (params.needs_input_gradient) {
    CAIRN_ASSIGN_OR_RETURN(backward, LinearPart::Create(context, Pass::kForward, convolution.forward, owned,
                                                        /*use_bias=*/false));
  }
  return std::make_unique<OnednnConv2DTranspose>(output, std::move(forward), std::move(weights),
                                                 std::move(backward));
}

}  // namespace cairn::kernels::cpu
