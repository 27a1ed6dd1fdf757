// Dense layers: three matrix products; the first one adds the bias.
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/core/status.h"
#include "kernels/cuda/linear/convert.h"
#include "kernels/cuda/linear/matmul.h"
#include "kernels/cuda/linear/relu_bias.h"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/runtime/context.h"

namespace cairn::kernels::cuda {
namespace {

class CudaDense final : public LinearOp {
 public:
  static absl::StatusOr<std::unique_ptr<LinearOp>> Create(Context& context, const DenseParams& params) {
    const ElementType type = context.compute_type();
    const int64_t rows = params.input.shape[0], inputs = params.input.shape[1], units = params.units;
    std::unique_ptr<CudaDense> dense(new CudaDense(context, params));
    CAIRN_ASSIGN_OR_RETURN(dense->input_,
                           ConvertedInput::Create(context, params.input, params.needs_input_gradient));
    // In 16 bits the kernel is converted, and so is the bias, which must have the type of the product's
    // result.
    if (type != ElementType::kFloat32) {
      const auto allocate = [&](int64_t elements) {
        return context.Allocate(TensorDesc{.shape = {elements}, .type = type}.num_floats(),
                                "converted kernel");
      };
      CAIRN_ASSIGN_OR_RETURN(dense->kernel_, allocate(inputs * units));
      CAIRN_ASSIGN_OR_RETURN(dense->bias_, allocate(units));
    }
    CAIRN_ASSIGN_OR_RETURN(dense->forward_, Matmul::Create(context, {.m = rows,
                                                                     .n = units,
                                                                     .k = inputs,
                                                                     .transpose_b = params.transposed,
                                                                     .operands = type,
                                                                     .result = type,
                                                                     .bias = params.use_bias}));
    const auto [kernel_rows, kernel_columns] =
        params.transposed ? std::pair(units, inputs) : std::pair(inputs, units);
    CAIRN_ASSIGN_OR_RETURN(
        dense->weights_,
        Matmul::Create(
            context,
            {.m = kernel_rows, .n = kernel_columns, .k = rows, .transpose_a = true, .operands = type}));
    if (params.needs_input_gradient) {
      CAIRN_ASSIGN_OR_RETURN(dense->source_, Matmul::Create(context, {.m = rows,
                                                                      .n = inputs,
                                                                      .k = units,
                                                                      .transpose_b = !params.transposed,
                                                                      .operands = type,
                                                                      .result = type}));
    }
    CAIRN_ASSIGN_OR_RETURN(dense->relu_bias_, ReluBias::Create(context, type, rows, units, params.relu));
    return dense;
  }

  const TensorDesc& output() const override { return output_; }

  absl::Status Forward(const float* x, const float* kernel, const float* bias, float* y) override {
    CAIRN_RETURN_IF_ERROR(input_->Convert(x));
    if (kernel_ != nullptr) {
      const int64_t units = output_.shape[1];
      CAIRN_RETURN_IF_ERROR(FromFloats(context_, kernel, output_.type, kernel_->data(), inputs_ * units));
      if (bias != nullptr) {
        CAIRN_RETURN_IF_ERROR(FromFloats(context_, bias, output_.type, bias_->data(), units));
        bias = bias_->data();
      }
    }
    CAIRN_RETURN_IF_ERROR(forward_->Run(input_->Of(x), Kernel(kernel), bias, y));
    return Apply(
        context_,
        {.type = output_.type, .rows = output_.shape[0], .channels = output_.shape[1], .relu = relu_}, y);
  }

  absl::Status Backward(const float* x, const float* kernel, const float* y, float* dy, float* dx,
                        float* dkernel, float* dbias) override {
    CAIRN_RETURN_IF_ERROR(relu_bias_->Backward(y, dy, dbias));
    const void* const source = input_->Of(x);
    CAIRN_RETURN_IF_ERROR(transposed_ ? weights_->Run(dy, source, nullptr, dkernel)
                                      : weights_->Run(source, dy, nullptr, dkernel));
    if (dx == nullptr) return absl::OkStatus();
    CAIRN_RETURN_IF_ERROR(source_->Run(dy, Kernel(kernel), nullptr, input_->GradientOf(dx)));
    return input_->ConvertGradient(dx);
  }

 private:
  CudaDense(Context& context, const DenseParams& params)
      : context_(context),
        output_({.shape = {params.input.shape[0], params.units}, .type = context.compute_type()}),
        inputs_(params.input.shape[1]),
        relu_(params.relu),
        transposed_(params.transposed) {}

  const float* Kernel(const float* kernel) const { return kernel_ == nullptr ? kernel : kernel_->data(); }

  Context& context_;
  const TensorDesc output_;
  const int64_t inputs_;
  const bool relu_, transposed_;
  std::optional<ConvertedInput> input_;
  std::unique_ptr<DeviceMemory> kernel_, bias_;  // converted in every step; null in float32
  std::unique_ptr<Matmul> forward_, weights_, source_;
  std::unique_ptr<ReluBias> relu_bias_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<LinearOp>> MakeDense(Context& context, const DenseParams& params) {
  const Shape& input = params.input.shape;
  if (input.rank() != 2 || input[0] < 1 || input[1] < 1 || params.units < 1) {
    return absl::InvalidArgumentError(absl::StrCat("a dense layer of ", params.units, " units over ",
                                                   input.ToString(), ": expected [batch, inputs]"));
  }
  return CudaDense::Create(context, params);
}

}  // namespace cairn::kernels::cuda
