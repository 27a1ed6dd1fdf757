// Larger images by repeated or interpolated pixels. Adjacent threads take adjacent channels.
#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/core/status.h"
#include "kernels/cuda/blocks/element.h"
#include "kernels/cuda/blocks/launch.h"
#include "kernels/cuda/blocks/pack.h"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/runtime/context.h"
#include "kernels/upsample.h"

namespace cairn::kernels::cuda {
namespace {

// Sizes of images [examples, height, width, packs], and the factors.
struct Enlarged {
  int64_t examples, height, width, packs;
  int64_t down, across;

  __host__ __device__ int64_t inputs() const { return examples * height * width * packs; }
  __host__ __device__ int64_t outputs() const { return inputs() * down * across; }
};

// One thread for each pack of y, grid-strided. Deterministic.
template <typename T, int kCount, bool kBilinear>
__global__ void EnlargeForward(Enlarged sizes, const Pack<T, kCount>* x, Pack<T, kCount>* y) {
  const int64_t outputs = sizes.outputs(), out_width = sizes.width * sizes.across;
  const int64_t out_height = sizes.height * sizes.down;
  for (int64_t i = CAIRN_GLOBAL_THREAD; i < outputs; i += CAIRN_GLOBAL_THREADS) {
    const int64_t pixel = i / sizes.packs, pack = i - pixel * sizes.packs;
    const int64_t row = pixel / out_width, column = pixel - row * out_width;
    const int64_t n = row / out_height, h = row - n * out_height;
    const auto at = [&](int64_t from_row, int64_t from_column) {
      return x[((n * sizes.height + from_row) * sizes.width + from_column) * sizes.packs + pack];
    };
    if constexpr (!kBilinear) {
      y[i] = at(h / sizes.down, column / sizes.across);
    } else {
      const Tap rows = TapOf(h, sizes.down, sizes.height), columns = TapOf(column, sizes.across, sizes.width);
      const Pack<T, kCount> a = at(rows.low, columns.low), b = at(rows.low, columns.high),
                            c = at(rows.high, columns.low), d = at(rows.high, columns.high);
      Pack<T, kCount> v;
#pragma unroll
      for (int k = 0; k < kCount; ++k) {
        const float above = ToFloat(a.at[k]) * (1 - columns.share) + ToFloat(b.at[k]) * columns.share;
        const float below = ToFloat(c.at[k]) * (1 - columns.share) + ToFloat(d.at[k]) * columns.share;
        v.at[k] = FromFloat<T>(above * (1 - rows.share) + below * rows.share);
      }
      y[i] = v;
    }
  }
}

// One thread for each pack of dx, grid-strided. Adds up the gradients of the output pixels that it contributes to,
// in order. Deterministic.
template <typename T, int kCount, bool kBilinear>
__global__ void EnlargeBackward(Enlarged sizes, const Pack<T, kCount>* dy, Pack<T, kCount>* dx) {
  const int64_t inputs = sizes.inputs(), out_width = sizes.width * sizes.across;
  const int64_t out_height = sizes.height * sizes.down;
  for (int64_t i = CAIRN_GLOBAL_THREAD; i < inputs; i += CAIRN_GLOBAL_THREADS) {
    const int64_t pixel = i / sizes.packs, pack = i - pixel * sizes.packs;
    const int64_t row = pixel / sizes.width, w = pixel - row * sizes.width;
    const int64_t n = row / sizes.height, h = row - n * sizes.height;
    const int64_t first_row = kBilinear ? FirstTap(h, sizes.down) : h * sizes.down;
    const int64_t last_row = kBilinear ? LastTap(h, sizes.down, sizes.height) : (h + 1) * sizes.down;
    const int64_t first_column = kBilinear ? FirstTap(w, sizes.across) : w * sizes.across;
    const int64_t last_column = kBilinear ? LastTap(w, sizes.across, sizes.width) : (w + 1) * sizes.across;
    float sum[kCount] = {};
    for (int64_t oh = first_row; oh < last_row; ++oh) {
      const float row_weight = kBilinear ? TapOf(oh, sizes.down, sizes.height).WeightOf(h) : 1;
      for (int64_t ow = first_column; ow < last_column; ++ow) {
        const float weight =
            kBilinear ? row_weight * TapOf(ow, sizes.across, sizes.width).WeightOf(w) : row_weight;
        const Pack<T, kCount> d = dy[((n * out_height + oh) * out_width + ow) * sizes.packs + pack];
#pragma unroll
        for (int k = 0; k < kCount; ++k) sum[k] += weight * ToFloat(d.at[k]);
      }
    }
    Pack<T, kCount> v;
#pragma unroll
    for (int k = 0; k < kCount; ++k) v.at[k] = FromFloat<T>(sum[k]);
    dx[i] = v;
  }
}

template <typename T, int kCount, bool kBilinear>
class CudaUpsample2D final : public UnaryOp {
 public:
  CudaUpsample2D(Context& context, TensorDesc output, const Enlarged& sizes)
      : context_(context), output_(std::move(output)), sizes_(sizes) {}

  const TensorDesc& output() const override { return output_; }

  absl::Status Forward(const float* x, float* y) override {
    return CAIRN_LAUNCH((EnlargeForward<T, kCount, kBilinear>), GridFor(sizes_.outputs()), kBlock, 0,
                        context_.stream(), sizes_, (As<Pack<T, kCount>>(x)), (As<Pack<T, kCount>>(y)));
  }
  absl::Status Backward(const float* /*x*/, const float* /*y*/, const float* dy, float* dx) override {
    return CAIRN_LAUNCH((EnlargeBackward<T, kCount, kBilinear>), GridFor(sizes_.inputs()), kBlock, 0,
                        context_.stream(), sizes_, (As<Pack<T, kCount>>(dy)), (As<Pack<T, kCount>>(dx)));
  }

 private:
  Context& context_;
  const TensorDesc output_;
  const Enlarged sizes_;
};

template <typename T, bool kBilinear>
std::unique_ptr<UnaryOp> MakeFor(Context& context, const TensorDesc& output, Enlarged sizes) {
  if (sizes.packs % kVector<T> != 0) {
    return std::make_unique<CudaUpsample2D<T, 1, kBilinear>>(context, output, sizes);
  }
  sizes.packs /= kVector<T>;
  return std::make_unique<CudaUpsample2D<T, kVector<T>, kBilinear>>(context, output, sizes);
}

}  // namespace

absl::StatusOr<std::unique_ptr<UnaryOp>> MakeUpsample2D(Context& context, const Upsample2DParams& params) {
  CAIRN_ASSIGN_OR_RETURN(const Shape shape, OutputShape(params));
  const Shape& input = params.input.shape;
  if (params.input.layout != Layout::kRowMajor) {
    return absl::InvalidArgumentError(
        absl::StrCat("cannot upsample ", params.input.ToString(), ", only row-major"));
  }
  const Enlarged sizes = {.examples = input[0],
                          .height = input[1],
                          .width = input[2],
                          .packs = input[3],
                          .down = params.height,
                          .across = params.width};
  const TensorDesc output = params.input.WithShape(shape);
  return VisitType(params.input.type, [&](auto* p) -> absl::StatusOr<std::unique_ptr<UnaryOp>> {
    using T = std::remove_pointer_t<decltype(p)>;
    return params.interpolation == Interpolation::kNearest ? MakeFor<T, false>(context, output, sizes)
                                                           : MakeFor<T, true>(context, output, sizes);
  });
}

}  // namespace cairn::kernels::cuda
