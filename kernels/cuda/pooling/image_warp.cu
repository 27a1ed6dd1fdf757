// Random transformations of images: those of a CPU, up to the rounding of cosines and sines.
#include <type_traits>

#include "common/core/status.h"
#include "kernels/cuda/blocks/element.h"
#include "kernels/cuda/blocks/launch.h"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/runtime/context.h"
#include "kernels/image_warp.h"

namespace cairn::kernels::cuda {
namespace {

// One thread for each pixel of y, grid-strided. Deterministic.
template <typename T>
__global__ void WarpPixels(WarpFormula formula, int64_t pixels, uint64_t stream,
                           const Context::RandomSeed* seed, const T* x, T* y) {
  const Context::RandomSeed drawn = *seed;
  for (int64_t i = CAIRN_GLOBAL_THREAD; i < pixels; i += CAIRN_GLOBAL_THREADS) {
    const int64_t row = i / formula.width, w = i - row * formula.width;
    const int64_t n = row / formula.height, h = row - n * formula.height;
    const AffineMap map = formula.MapOf(static_cast<uint64_t>(drawn.first_example) + static_cast<uint64_t>(n),
                                        drawn.seed ^ stream);
    const T* const image = x + n * formula.height * formula.width * formula.channels;
    const float from_row = map.Row(h, w), from_column = map.Column(h, w);
    for (int64_t c = 0; c < formula.channels; ++c) {
      y[i * formula.channels + c] = FromFloat<T>(
          formula.Sample(from_row, from_column, c, [&](int64_t at) { return ToFloat(image[at]); }));
    }
  }
}

template <typename T>
class CudaImageWarp final : public ImageWarp {
 public:
  CudaImageWarp(Context& context, const ImageWarpParams& params, const Context::RandomSeed* seed)
      : context_(context),
        formula_(params),
        pixels_(params.input.shape.num_elements() / params.input.shape[3]),
        stream_(params.stream),
        seed_(seed) {}

  absl::Status Forward(const float* x, float* y) override {
    return CAIRN_LAUNCH(WarpPixels<T>, GridFor(pixels_), kBlock, 0, context_.stream(), formula_, pixels_,
                        stream_, seed_, As<T>(x), As<T>(y));
  }

 private:
  Context& context_;
  const WarpFormula formula_;
  const int64_t pixels_;
  const uint64_t stream_;
  const Context::RandomSeed* const seed_;  // of the next Forward(), in the context
};

}  // namespace

absl::StatusOr<std::unique_ptr<ImageWarp>> MakeImageWarp(Context& context, const ImageWarpParams& params) {
  CAIRN_RETURN_IF_ERROR(CheckImageWarp(params));
  CAIRN_ASSIGN_OR_RETURN(const Context::RandomSeed* const seed, context.Seed());
  return VisitType(params.input.type, [&](auto* p) -> absl::StatusOr<std::unique_ptr<ImageWarp>> {
    using T = std::remove_pointer_t<decltype(p)>;
    return std::make_unique<CudaImageWarp<T>>(context, params, seed);
  });
}

}  // namespace cairn::kernels::cuda
