// Batch normalization by oneDNN, in the layout of its input.
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/core/status.h"
#include "kernels/cpu/onednn.h"
#include "kernels/cpu/ops.h"

namespace cairn::kernels::cpu {
namespace {

class OnednnBatchNorm final : public BatchNorm {
 public:
  OnednnBatchNorm(TensorDesc output, onednn::Primitive train, onednn::Primitive infer,
                  onednn::Primitive backward)
      : output_(std::move(output)),
        train_(std::move(train)),
        infer_(std::move(infer)),
        backward_(std::move(backward)) {}

  const TensorDesc& output() const override { return output_; }

  absl::Status Forward(const float* x, const float* gamma, const float* beta, float* mean, float* variance,
                       float* y) override {
    return train_.Run({x, mean, variance, gamma, beta, y});
  }
  absl::Status Infer(const float* x, const float* gamma, const float* beta, const float* mean,
                     const float* variance, float* y) override {
    return infer_.Run({x, mean, variance, gamma, beta, y});
  }
  absl::Status Backward(const float* x, const float* gamma, const float* mean, const float* variance,
                        const float* dy, float* dx, float* dgamma, float* dbeta) override {
    return backward_.Run({x, mean, variance, dy, gamma, mean, dx, dgamma, dbeta});
  }

 private:
  const TensorDesc output_;
  onednn::Primitive train_, infer_, backward_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<BatchNorm>> MakeBatchNorm(onednn::Context& context,
                                                         const BatchNormParams& params) {
  context.UseThreads();
  const Shape& shape = params.input.shape;
  if (shape.rank() < 2 || shape.num_elements() < 1) {
    return absl::InvalidArgumentError(absl::StrCat("batch normalization of ", params.input.ToString(),
                                                   ": expected [batch, ..., channels]"));
  }
  // For oneDNN, a row-major tensor of any rank is an image with one column.
  const int64_t channels = shape[shape.rank() - 1];
  const TensorDesc image = params.input.layout == Layout::kRowMajor
                               ? TensorDesc{.shape = {shape.num_elements() / channels, 1, 1, channels}}
                               : params.input;
  onednn::BatchNormArgs args = {.activation = onednn::ActivationDesc(image),
                                .epsilon = params.epsilon,
                                .scale = params.scale,
                                .center = params.center};
  const auto statistics = onednn::Describe({channels}, onednn::Format::x);
  const auto scale = params.scale ? statistics : onednn::MemoryDesc();
  const auto shift = params.center ? statistics : onednn::MemoryDesc();
  const auto make_forward = [&]() -> absl::StatusOr<onednn::Primitive> {
    CAIRN_ASSIGN_OR_RETURN(const auto desc, MakeBatchNormForward(context, args));
    return onednn::Primitive::Create(context, desc,
                                     {{DNNL_ARG_SRC, args.activation},
                                      {DNNL_ARG_MEAN, statistics},
                                      {DNNL_ARG_VARIANCE, statistics},
                                      {DNNL_ARG_SCALE, scale},
                                      {DNNL_ARG_SHIFT, shift},
                                      {DNNL_ARG_DST, args.activation}});
  };
  CAIRN_ASSIGN_OR_RETURN(auto train, make_forward());
  args.given_statistics = true;
  CAIRN_ASSIGN_OR_RETURN(auto infer, make_forward());
  args.given_statistics = params.frozen;
  CAIRN_ASSIGN_OR_RETURN(const auto backward_desc, MakeBatchNormBackward(context, args));
  const auto given_shift = onednn::BatchNormBackwardTakesShift() ? shift : onednn::MemoryDesc();
  CAIRN_ASSIGN_OR_RETURN(auto backward, onednn::Primitive::Create(context, backward_desc,
                                                                  {{DNNL_ARG_SRC, args.activation},
                                                                   {DNNL_ARG_MEAN, statistics},
                                                                   {DNNL_ARG_VARIANCE, statistics},
                                                                   {DNNL_ARG_DIFF_DST, args.activation},
                                                                   {DNNL_ARG_SCALE, scale},
                                                                   {DNNL_ARG_SHIFT, given_shift},
                                                                   {DNNL_ARG_DIFF_SRC, args.activation},
                                                                   {DNNL_ARG_DIFF_SCALE, scale},
                                                                   {DNNL_ARG_DIFF_SHIFT, shift}}));
  return std::make_unique<OnednnBatchNorm>(params.input, std::move(train), std::move(infer),
                                           std::move(backward));
}

}  // namespace cairn::kernels::cpu
