// Transposed convolutions: the maps of a convolution in the reverse direction, from its destination, which is
// our input, to its source, which is our output.
#include <utility>

#include "common/core/status.h"
#include "kernels/cuda/linear/convert.h"
#include "kernels/cuda/linear/convolution.h"
#include "kernels/cuda/linear/relu_bias.h"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/runtime/context.h"
#include "kernels/window.h"

namespace cairn::kernels::cuda {
namespace {

class CudaConv2DTranspose final : public LinearOp {
 public:
  CudaConv2DTranspose(Context& context, TensorDesc output, ConvertedInput input,
                      std::unique_ptr<Convolution> convolution, std::unique_ptr<ReluBias> relu_bias)
      : context_(context),
        output_(std::move(output)),
        input_(std::move(input)),
        convolution_(std::move(convolution)),
        relu_bias_(std::move(relu_bias)) {}

  const TensorDesc& output() const override { return output_; }

  absl::Status Forward(const float* x, const float* kernel, const float* bias, float* y) override {
    CAIRN_RETURN_IF_ERROR(input_.Convert(x));
    CAIRN_RETURN_IF_ERROR(convolution_->SetKernel(kernel));
    CAIRN_RETURN_IF_ERROR(convolution_->BackwardSource(input_.Of(x), y));
    const Shape& shape = output_.shape;
    return Apply(
        context_,
        {.type = output_.type, .rows = shape[0] * shape[1] * shape[2], .channels = shape[3], .bias = bias},
        y);
  }

  absl::Status Backward(const float* x, const float* /*kernel*/, const float* y, float* dy, float* dx,
                        float* dkernel, float* dbias) override {
    CAIRN_RETURN_IF_ERROR(relu_bias_->Backward(y, dy, dbias));
    if (dx != nullptr) {
      CAIRN_RETURN_IF_ERROR(convolution_->Forward(dy, nullptr, input_.GradientOf(dx)));
      CAIRN_RETURN_IF_ERROR(input_.ConvertGradient(dx));
    }
    return convolution_->BackwardKernel(dy, input_.Of(x), dkernel);
  }

 private:
  Context& context_;
  const TensorDesc output_;
  ConvertedInput input_;
  const std::unique_ptr<Convolution> convolution_;
  const std::unique_ptr<ReluBias> relu_bias_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<LinearOp>> MakeConv2DTranspose(Context& context,
                                                              const Conv2DTransposeParams& params) {
  CAIRN_ASSIGN_OR_RETURN(const Shape shape, OutputShape(params));
  const TensorDesc& input = params.input;
  const TensorDesc output = {.shape = shape, .type = context.compute_type()};
  CAIRN_ASSIGN_OR_RETURN(auto converted, ConvertedInput::Create(context, input, params.needs_input_gradient));
  CAIRN_ASSIGN_OR_RETURN(auto convolution,
                         MakeConvolution(context, {.shape = ConvolutionShapeOf(
                                                       TransposedConvolution(params, shape), input.shape),
                                                   .type = output.type,
                                                   .forward = params.needs_input_gradient}));
  CAIRN_ASSIGN_OR_RETURN(auto relu_bias,
                         ReluBias::Create(context, output.type, shape[0] * shape[1] * shape[2], shape[3],
                                          /*relu=*/false));
  return std::make_unique<CudaConv2DTranspose>(context, output, std::move(converted), std::move(convolution),
                                               std::move(relu_bias));
}

}  // namespace cairn::kernels::cuda
