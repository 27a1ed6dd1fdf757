// Convolutions: by cuDNN if it supports them, otherwise by our own kernels.
#include <utility>

#include "common/core/status.h"
#include "kernels/cuda/linear/convert.h"
#include "kernels/cuda/linear/convolution.h"
#include "kernels/cuda/linear/pooled_conv2d.h"
#include "kernels/cuda/linear/relu_bias.h"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/runtime/context.h"
#include "kernels/window.h"

namespace cairn::kernels::cuda {
namespace {

class CudaConv2D final : public LinearOp {
 public:
  CudaConv2D(TensorDesc output, ConvertedInput input, std::unique_ptr<Convolution> convolution,
             std::unique_ptr<ReluBias> relu_bias)
      : output_(std::move(output)),
        input_(std::move(input)),
        convolution_(std::move(convolution)),
        relu_bias_(std::move(relu_bias)) {}

  const TensorDesc& output() const override { return output_; }

  absl::Status Forward(const float* x, const float* kernel, const float* bias, float* y) override {
    CAIRN_RETURN_IF_ERROR(input_.Convert(x));
    CAIRN_RETURN_IF_ERROR(convolution_->SetKernel(kernel));
    return convolution_->Forward(input_.Of(x), bias, y);
  }

  absl::Status Backward(const float* x, const float* /*kernel*/, const float* y, float* dy, float* dx,
                        float* dkernel, float* dbias) override {
    CAIRN_RETURN_IF_ERROR(relu_bias_->Backward(y, dy, dbias));
    CAIRN_RETURN_IF_ERROR(convolution_->BackwardKernel(input_.Of(x), dy, dkernel));
    if (dx == nullptr) return absl::OkStatus();
    CAIRN_RETURN_IF_ERROR(convolution_->BackwardSource(dy, input_.GradientOf(dx)));
    return input_.ConvertGradient(dx);
  }

 private:
  const TensorDesc output_;
  ConvertedInput input_;
  const std::unique_ptr<Convolution> convolution_;
  const std::unique_ptr<ReluBias> relu_bias_;
};

}  // namespace

ConvolutionShape ConvolutionShapeOf(const Conv2DParams& params, const Shape& destination) {
  const Shape& source = params.input.shape;
  const Window rows = MakeWindow(source[1], Dilated(params.kernel_height, params.dilation_height),
                                 params.stride_height, params.padding);
  const Window columns = MakeWindow(source[2], Dilated(params.kernel_width, params.dilation_width),
                                    params.stride_width, params.padding);
  return {.n = source[0],
          .h = source[1],
          .w = source[2],
          .c = source[3],
          .oh = destination[1],
          .ow = destination[2],
          .f = destination[3],
          .kh = params.kernel_height,
          .kw = params.kernel_width,
          .stride_h = params.stride_height,
          .stride_w = params.stride_width,
          .dilation_h = params.dilation_height,
          .dilation_w = params.dilation_width,
          .pad_top = rows.pad_before,
          .pad_bottom = rows.pad_after,
          .pad_left = columns.pad_before,
          .pad_right = columns.pad_after,
          .groups = params.groups};
}

absl::StatusOr<std::unique_ptr<Convolution>> MakeConvolution(Context& context,
                                                             const ConvolutionParams& params) {
  auto convolution = MakeCudnnConvolution(context, params);
  if (!absl::IsUnimplemented(convolution.status())) return convolution;
  return MakeDirectConvolution(context, params);
}

absl::StatusOr<std::unique_ptr<LinearOp>> MakeConv2D(Context& context, const Conv2DParams& params) {
  CAIRN_ASSIGN_OR_RETURN(const Shape shape, OutputShape(params));
  const TensorDesc& input = params.input;
  const TensorDesc output = {.shape = shape, .type = context.compute_type()};
  const ConvolutionParams convolution_params = {.shape = ConvolutionShapeOf(params, shape),
                                                .type = output.type,
                                                .bias = params.use_bias,
                                                .relu = params.relu,
                                                .backward_source = params.needs_input_gradient};
  if (params.pool_height != 0) {
    if (!params.relu)
      return absl::UnimplementedError("pooling cannot be fused with a convolution without relu");
    return MakePooledConv2D(context, {.convolution = convolution_params,
                                      .input = input,
                                      .needs_input_gradient = params.needs_input_gradient,
                                      .pool_h = params.pool_height,
                                      .pool_w = params.pool_width});
  }
  CAIRN_ASSIGN_OR_RETURN(auto converted, ConvertedInput::Create(context, input, params.needs_input_gradient));
  CAIRN_ASSIGN_OR_RETURN(auto convolution, MakeConvolution(context, convolution_params));
  CAIRN_ASSIGN_OR_RETURN(
      auto relu_bias,
      ReluBias::Create(context, output.type, shape[0] * shape[1] * shape[2], shape[3], params.relu));
  return std::make_unique<CudaConv2D>(output, std::move(converted), std::move(convolution),
                                      std::move(relu_bias));
}

}  // namespace cairn::kernels::cuda
