// Average pooling by oneDNN, in the layout of its input.
#include <utility>

#include "common/core/status.h"
#include "kernels/cpu/onednn.h"
#include "kernels/cpu/ops.h"
#include "kernels/window.h"

namespace cairn::kernels::cpu {
namespace {

class OnednnAveragePool2D final : public UnaryOp {
 public:
  OnednnAveragePool2D(TensorDesc output, onednn::Primitive forward, onednn::Primitive backward)
      : output_(std::move(output)), forward_(std::move(forward)), backward_(std::move(backward)) {}

  const TensorDesc& output() const override { return output_; }
  absl::Status Forward(const float* x, float* y) override { return forward_.Run({x, y}); }
  absl::Status Backward(const float*, const float*, const float* dy, float* dx) override {
    return backward_.Run({dy, dx});
  }

 private:
  const TensorDesc output_;
  onednn::Primitive forward_, backward_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<UnaryOp>> MakeAveragePool2D(onednn::Context& context,
                                                           const Pool2DParams& params) {
  context.UseThreads();
  CAIRN_ASSIGN_OR_RETURN(const Shape shape, OutputShape(params));
  TensorDesc output = {.shape = shape, .layout = params.input.layout};
  const Shape& input = params.input.shape;
  const Window rows = MakeWindow(input[1], params.pool_height, params.stride_height, params.padding);
  const Window columns = MakeWindow(input[2], params.pool_width, params.stride_width, params.padding);
  const onednn::AveragePoolArgs args = {.source = onednn::ActivationDesc(params.input),
                                        .destination = onednn::ActivationDesc(output),
                                        .window = {params.pool_height, params.pool_width},
                                        .strides = {params.stride_height, params.stride_width},
                                        .pad_before = {rows.pad_before, columns.pad_before},
                                        .pad_after = {rows.pad_after, columns.pad_after}};
  CAIRN_ASSIGN_OR_RETURN(const auto forward_desc, MakeAveragePoolForward(context, args));
  CAIRN_ASSIGN_OR_RETURN(auto forward, onednn::Primitive::Create(
                                           context, forward_desc,
                                           {{DNNL_ARG_SRC, args.source}, {DNNL_ARG_DST, args.destination}}));
  CAIRN_ASSIGN_OR_RETURN(const auto backward_desc, MakeAveragePoolBackward(context, args, forward_desc));
  CAIRN_ASSIGN_OR_RETURN(auto backward, onednn::Primitive::Create(context, backward_desc,
                                                                  {{DNNL_ARG_DIFF_DST, args.destination},
                                                                   {DNNL_ARG_DIFF_SRC, args.source}}));
  return std::make_unique<OnednnAveragePool2D>(std::move(output), std::move(forward), std::move(backward));
}

}  // namespace cairn::kernels::cpu
