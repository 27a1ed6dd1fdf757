// Dense layers by oneDNN's inner product. The kernel is used in Keras' [inputs, units] where that has fast
// code, so that a large one is never copied (reordering it on every step costs a third of the rate).
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/core/status.h"
#include "kernels/cpu/onednn.h"
#include "kernels/cpu/ops.h"

namespace cairn::kernels::cpu {
namespace {

using onednn::MemoryDesc;
using onednn::Primitive;
using onednn::Staging;
using Direction = onednn::Staging::Direction;

// One of the three primitives; its kernel, or the kernel's gradient, may be kept in another format than the
// caller's.
struct Part {
  Primitive primitive;
  Staging kernel;
};

class OnednnDense final : public Dense {
 public:
  OnednnDense(TensorDesc output, Part forward, Part weights, std::optional<Part> input,
              std::optional<Primitive> relu)
      : output_(std::move(output)),
        forward_(std::move(forward)),
        weights_(std::move(weights)),
        input_(std::move(input)),
        relu_(std::move(relu)) {}

  const TensorDesc& output() const override { return output_; }

  absl::Status Forward(const float* x, const float* kernel, const float* bias, float* y) override {
    CAIRN_ASSIGN_OR_RETURN(const float* weights, forward_.kernel.Load(kernel));
    return forward_.primitive.Run({x, weights, y, bias});
  }

  absl::Status Backward(const float* x, const float* kernel, const float* y, float* dy, float* dx,
                        float* dkernel, float* dbias) override {
    if (relu_.has_value()) CAIRN_RETURN_IF_ERROR(relu_->Run({y, dy, dy}));
    CAIRN_RETURN_IF_ERROR(weights_.primitive.Run({x, weights_.kernel.Target(dkernel), dy, dbias}));
    CAIRN_RETURN_IF_ERROR(weights_.kernel.Store(dkernel));
    if (!input_.has_value()) return absl::OkStatus();
    CAIRN_ASSIGN_OR_RETURN(const float* weights, input_->kernel.Load(kernel));
    return input_->primitive.Run({dx, weights, dy});
  }

 private:
  const TensorDesc output_;
  Part forward_;
  Part weights_;
  std::optional<Part> input_;      // absent when no input gradient is needed
  std::optional<Primitive> relu_;  // dy through the fused activation, in place
};

}  // namespace

absl::StatusOr<std::unique_ptr<Dense>> MakeDense(onednn::Context& context, const DenseParams& params) {
  context.UseThreads();
  const Shape& input_shape = params.input.shape;
  if (input_shape.rank() != 2 || params.input.layout != Layout::kRowMajor || input_shape.num_elements() < 1 ||
      params.units < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("dense of ", params.units, " units over ", params.input.ToString(),
                     ": expected [batch, inputs], row-major, sizes of at least 1"));
  }
  const onednn::InnerProductArgs args = {.batch = input_shape[0],
                                         .inputs = input_shape[1],
                                         .units = params.units,
                                         .use_bias = params.use_bias,
                                         .relu = params.activation == Activation::kRelu};
  TensorDesc output = {.shape = {args.batch, args.units}};
  const MemoryDesc y = onednn::ActivationDesc(output);
  const MemoryDesc kernel = onednn::Describe({args.units, args.inputs}, onednn::Format::io);

  CAIRN_ASSIGN_OR_RETURN(const auto forward_desc, MakeInnerProductForward(context, args));
  CAIRN_ASSIGN_OR_RETURN(auto forward, Primitive::Create(context, forward_desc,
                                                         {{DNNL_ARG_SRC, forward_desc.src_desc()},
                                                          {DNNL_ARG_WEIGHTS, forward_desc.weights_desc()},
                                                          {DNNL_ARG_DST, forward_desc.dst_desc()},
                                                          {DNNL_ARG_BIAS, forward_desc.bias_desc()}}));
  CAIRN_ASSIGN_OR_RETURN(auto forward_kernel,
                         Staging::Create(context, Direction::kIn, kernel, forward_desc.weights_desc()));

  CAIRN_ASSIGN_OR_RETURN(const auto weights_desc,
                         MakeInnerProductBackwardWeights(context, args, forward_desc));
  CAIRN_ASSIGN_OR_RETURN(
      auto weights, Primitive::Create(context, weights_desc,
                                      {{DNNL_ARG_SRC, weights_desc.src_desc()},
                                       {DNNL_ARG_DIFF_WEIGHTS, weights_desc.diff_weights_desc()},
                                       {DNNL_ARG_DIFF_DST, weights_desc.diff_dst_desc()},
                                       {DNNL_ARG_DIFF_BIAS,
                                        params.use_bias ? weights_desc.diff_bias_desc() : MemoryDesc()}}));
  CAIRN_ASSIGN_OR_RETURN(auto weights_kernel,
                         Staging::Create(context, Direction::kOut, kernel, weights_desc.diff_weights_desc()));

  std::optional<Part> input;
  if (params.needs_input_gradient) {
    CAIRN_ASSIGN_OR_RETURN(const auto input_desc, MakeInnerProductBackwardData(context, args, forward_desc));
    CAIRN_ASSIGN_OR_RETURN(auto primitive,
                           Primitive::Create(context, input_desc,
                                             {{DNNL_ARG_DIFF_SRC, input_desc.diff_src_desc()},
                                              {DNNL_ARG_WEIGHTS, input_desc.weights_desc()},
                                              {DNNL_ARG_DIFF_DST, input_desc.diff_dst_desc()}}));
    CAIRN_ASSIGN_OR_RETURN(auto staging,
                           Staging::Create(context, Direction::kIn, kernel, input_desc.weights_desc()));
    input = Part{std::move(primitive), std::move(staging)};
  }

  std::optional<Primitive> relu;
  if (args.relu) {
    CAIRN_ASSIGN_OR_RETURN(relu, onednn::MakeReluBackward(context, y));
  }
  return std::make_unique<OnednnDense>(std::move(output), Part{std::move(forward), std::move(forward_kernel)},
                                       Part{std::move(weights), std::move(weights_kernel)}, std::move(input),
                                       std::move(relu));
}

}  // namespace cairn::kernels::cpu
