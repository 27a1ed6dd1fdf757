// The windows of a convolution along the depth of volumes, side by side. Adjacent threads take adjacent channels.
#include <type_traits>
#include <utility>

#include "common/core/status.h"
#include "kernels/cuda/blocks/element.h"
#include "kernels/cuda/blocks/launch.h"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/runtime/context.h"
#include "kernels/window.h"

namespace cairn::kernels::cuda {
namespace {

struct DepthSizes {
  int64_t examples, depth, places, channels;
  int64_t windows, window, stride, dilation, before;

  __host__ __device__ int64_t inputs() const { return examples * depth * places * channels; }
  __host__ __device__ int64_t outputs() const { return examples * windows * places * window * channels; }
};

// One thread for each element of y, grid-strided. Deterministic.
template <typename T>
__global__ void GatherWindows(DepthSizes sizes, const T* x, T* y) {
  const int64_t outputs = sizes.outputs();
  for (int64_t i = CAIRN_GLOBAL_THREAD; i < outputs; i += CAIRN_GLOBAL_THREADS) {
    const int64_t tap = i / sizes.channels, c = i - tap * sizes.channels;
    const int64_t pixel = tap / sizes.window, k = tap - pixel * sizes.window;
    const int64_t row = pixel / sizes.places, place = pixel - row * sizes.places;
    const int64_t n = row / sizes.windows, o = row - n * sizes.windows;
    const int64_t d = o * sizes.stride + k * sizes.dilation - sizes.before;
    y[i] = d < 0 || d >= sizes.depth ? FromFloat<T>(0.0f)
                                     : x[((n * sizes.depth + d) * sizes.places + place) * sizes.channels + c];
  }
}

// One thread for each element of dx, grid-strided: adds up the windows that contain it, in order. Deterministic.
template <typename T>
__global__ void SumWindows(DepthSizes sizes, const T* dy, T* dx) {
  const int64_t inputs = sizes.inputs();
  for (int64_t i = CAIRN_GLOBAL_THREAD; i < inputs; i += CAIRN_GLOBAL_THREADS) {
    const int64_t pixel = i / sizes.channels, c = i - pixel * sizes.channels;
    const int64_t row = pixel / sizes.places, place = pixel - row * sizes.places;
    const int64_t n = row / sizes.depth, d = row - n * sizes.depth;
    float sum = 0;
    for (int64_t k = 0; k < sizes.window; ++k) {
      const int64_t first = d + sizes.before - k * sizes.dilation, o = first / sizes.stride;
      if (first < 0 || o * sizes.stride != first || o >= sizes.windows) continue;
      const int64_t from = ((n * sizes.windows + o) * sizes.places + place) * sizes.window + k;
      sum += ToFloat(dy[from * sizes.channels + c]);
    }
    dx[i] = FromFloat<T>(sum);
  }
}

template <typename T>
class CudaDepthWindows final : public UnaryOp {
 public:
  CudaDepthWindows(Context& context, TensorDesc output, const DepthSizes& sizes)
      : context_(context), output_(std::move(output)), sizes_(sizes) {}

  const TensorDesc& output() const override { return output_; }

  absl::Status Forward(const float* x, float* y) override {
    return CAIRN_LAUNCH(GatherWindows<T>, GridFor(sizes_.outputs()), kBlock, 0, context_.stream(), sizes_,
                        As<T>(x), As<T>(y));
  }
  absl::Status Backward(const float* /*x*/, const float* /*y*/, const float* dy, float* dx) override {
    return CAIRN_LAUNCH(SumWindows<T>, GridFor(sizes_.inputs()), kBlock, 0, context_.stream(), sizes_,
                        As<T>(dy), As<T>(dx));
  }

 private:
  Context& context_;
  const TensorDesc output_;
  const DepthSizes sizes_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<UnaryOp>> MakeDepthWindows(Context& context,
                                                          const DepthWindowsParams& params) {
  CAIRN_ASSIGN_OR_RETURN(const Shape shape, OutputShape(params));
  const Shape& input = params.input.shape;
  const Window window =
      MakeWindow(input[1], Dilated(params.window, params.dilation), params.stride, params.padding);
  const DepthSizes sizes = {.examples = input[0],
                            .depth = input[1],
                            .places = input[2],
                            .channels = input[3],
                            .windows = window.output,
                            .window = params.window,
                            .stride = params.stride,
                            .dilation = params.dilation,
                            .before = window.pad_before};
  return VisitType(params.input.type, [&](auto* p) -> absl::StatusOr<std::unique_ptr<UnaryOp>> {
    using T = std::remove_pointer_t<decltype(p)>;
    return std::make_unique<CudaDepthWindows<T>>(context, params.input.WithShape(shape), sizes);
  });
}

}  // namespace cairn::kernels::cuda
