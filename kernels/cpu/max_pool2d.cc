// Max pooling by oneDNN, in whatever layout the input has. Of equal maxima the first wins, as in Keras.
#include <utility>

#include "common/core/aligned_buffer.h"
#include "common/core/status.h"
#include "kernels/cpu/onednn.h"
#include "kernels/cpu/ops.h"
#include "kernels/window.h"

namespace cairn::kernels::cpu {
namespace {

using onednn::MemoryDesc;
using onednn::Primitive;

class OnednnMaxPool2D final : public MaxPool2D {
 public:
  OnednnMaxPool2D(TensorDesc output, Primitive forward, Primitive backward, AlignedBuffer maxima)
      : output_(std::move(output)),
        forward_(std::move(forward)),
        backward_(std::move(backward)),
        maxima_(std::move(maxima)) {}

  const TensorDesc& output() const override { return output_; }
  absl::Status Forward(const float* x, float* y) override { return forward_.Run({x, y, maxima_.data()}); }
  absl::Status Backward(const float* dy, float* dx) override {
    return backward_.Run({dy, dx, maxima_.data()});
  }

 private:
  const TensorDesc output_;
  Primitive forward_, backward_;
  AlignedBuffer maxima_;  // where each window's maximum was, in oneDNN's own form
};

}  // namespace

absl::StatusOr<std::unique_ptr<MaxPool2D>> MakeMaxPool2D(onednn::Context& context, const MaxPool2DParams& params) {
  context.UseThreads();
  CAIRN_ASSIGN_OR_RETURN(const Shape shape, OutputShape(params));
  const Shape& input = params.input.shape;
  TensorDesc output = {.shape = shape, .layout = params.input.layout};
  const Window rows = MakeWindow(input[1], params.pool_height, params.stride_height, params.padding);
  const Window columns = MakeWindow(input[2], params.pool_width, params.stride_width, params.padding);
  const MemoryDesc x = onednn::ActivationDesc(params.input), y = onednn::ActivationDesc(output);
  const onednn::PoolingArgs args = {.source = x,
                                    .destination = y,
                                    .window = {params.pool_height, params.pool_width},
                                    .strides = {params.stride_height, params.stride_width},
                                    .pad_before = {rows.pad_before, columns.pad_before},
                                    .pad_after = {rows.pad_after, columns.pad_after}};
  CAIRN_ASSIGN_OR_RETURN(const auto forward_desc, MakeMaxPoolingForward(context, args));
  CAIRN_ASSIGN_OR_RETURN(const auto backward_desc, MakeMaxPoolingBackward(context, args, forward_desc));
  const MemoryDesc maxima = forward_desc.workspace_desc();
  CAIRN_ASSIGN_OR_RETURN(
      auto forward,
      Primitive::Create(context, forward_desc,
                        {{DNNL_ARG_SRC, x}, {DNNL_ARG_DST, y}, {DNNL_ARG_WORKSPACE, maxima}}));
  CAIRN_ASSIGN_OR_RETURN(
      auto backward,
      Primitive::Create(context, backward_desc,
                        {{DNNL_ARG_DIFF_DST, y}, {DNNL_ARG_DIFF_SRC, x}, {DNNL_ARG_WORKSPACE, maxima}}));
  return std::make_unique<OnednnMaxPool2D>(std::move(output), std::move(forward), std::move(backward),
                                           AlignedBuffer(onednn::NumFloats(maxima)));
}

}  // namespace cairn::kernels::cpu
