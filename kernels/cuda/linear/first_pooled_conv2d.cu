// The first convolution of a network, for images with few channels, with its relu and its 2x2 max pooling, in
// registers. The unpooled image, the largest of the network, is never written, and its gradient is only
// computed for the quarter of the positions that the pooling selected.
#include <algorithm>
#include <type_traits>
#include <utility>

#include "common/core/status.h"
#include "kernels/cuda/blocks/element.h"
#include "kernels/cuda/blocks/launch.h"
#include "kernels/cuda/linear/pooled_conv2d.h"
#include "kernels/formulas.h"

namespace cairn::kernels::cuda {
namespace {

constexpr int kWarps = 8;      // warps of a block
constexpr int kSumWarps = 16;  // warps of a block of the second stage

// The shape in 32 bits, as the kernels use it: divisions of 64-bit numbers would cost more than the sums.
struct PooledPlaces {
  uint32_t count = 0;  // pooled positions: n * ph * pw
  uint32_t ph = 0, pw = 0;
  int h = 0, w = 0, pad_top = 0, pad_left = 0;
  int filters = 0;
};

// The part of x that the four windows of a pooled position cover, with zeros outside the image.
template <int KH, int KW, int C>
struct Patch {
  static constexpr int kHeight = KH + 1, kWidth = KW + 1;
  int h, w;
  const float* image;

  __device__ Patch(const PooledPlaces& p, uint32_t place, const float* x) {
    const uint32_t row = place / p.pw, n = row / p.ph;
    h = static_cast<int>(row - n * p.ph) * 2 - p.pad_top;
    w = static_cast<int>(place - row * p.pw) * 2 - p.pad_left;
    image = x + static_cast<int64_t>(n) * p.h * p.w * C;
  }
  __device__ float At(const PooledPlaces& p, int i, int j, int c) const {
    const int row = h + i, column = w + j;
    if (row < 0 || row >= p.h || column < 0 || column >= p.w) return 0;
    return image[(row * p.w + column) * C + c];
  }
};

// One warp for each pooled position and 32 filters (blockIdx.y). Each thread keeps its filter's weights in
// registers, and all threads share the patch of x. argmax: the index of the first maximum among the four, row
// by row. Deterministic.
template <int KH, int KW, int C, typename T>
__global__ void __launch_bounds__(kWarps* kWarp)
    FirstForward(PooledPlaces p, const float* x, const float* kernel, const float* bias, T* y,
                 uint8_t* argmax) {
  constexpr int kTaps = KH * KW * C;
  using P = Patch<KH, KW, C>;
  const int f = static_cast<int>(blockIdx.y) * kWarp + static_cast<int>(threadIdx.x);
  const bool mine = f < p.filters;
  float weights[kTaps];
#pragma unroll
  for (int tap = 0; tap < kTaps; ++tap) weights[tap] = mine ? kernel[tap * p.filters + f] : 0.0f;
  const float offset = mine && bias != nullptr ? bias[f] : 0.0f;
  for (uint32_t place = blockIdx.x * kWarps + threadIdx.y; place < p.count; place += gridDim.x * kWarps) {
    const P patch(p, place, x);
    float values[P::kHeight * P::kWidth * C];
#pragma unroll
    for (int i = 0; i < P::kHeight * P::kWidth * C; ++i) {
      values[i] = patch.At(p, i / (P::kWidth * C), i / C % P::kWidth, i % C);
    }
    float largest = 0;
    int at = 0;
#pragma unroll
    for (int window = 0; window < 4; ++window) {
      float sum = 0;
#pragma unroll
      for (int i = 0; i < KH; ++i) {
#pragma unroll
        for (int j = 0; j < KW * C; ++j) {
          sum += weights[i * KW * C + j] * values[(i + window / 2) * P::kWidth * C + j + window % 2 * C];
        }
      }
      if (window == 0 || IsLarger(sum, largest)) {
        largest = sum;
        at = window;
      }
    }
    if (!mine) continue;
    const int64_t to = static_cast<int64_t>(place) * p.filters + f;
    y[to] = FromFloat<T>(Relu(largest + offset));  // bias and relu do not change which sum is the largest
    argmax[to] = static_cast<uint8_t>(at);
  }
}

// Each warp strides over pooled positions, for 32 filters. Each thread sums its filter's gradients in
// registers, and the warps of a block add their sums in shared memory. partial [gridDim.x, taps + 1, filters]
// receives the sums, those for the bias last. Deterministic.
template <int KH, int KW, int C, typename T>
__global__ void __launch_bounds__(kWarps* kWarp)
    FirstBackward(PooledPlaces p, const float* x, const T* y, const uint8_t* argmax, const T* dy,
                  float* partial) {
  constexpr int kTaps = KH * KW * C;
  using P = Patch<KH, KW, C>;
  const int f = static_cast<int>(blockIdx.y) * kWarp + static_cast<int>(threadIdx.x);
  const bool mine = f < p.filters;
  float sums[kTaps + 1] = {};
  for (uint32_t place = blockIdx.x * kWarps + threadIdx.y; mine && place < p.count;
       place += gridDim.x * kWarps) {
    const int64_t from = static_cast<int64_t>(place) * p.filters + f;
    const float d = ToFloat(y[from]) > 0 ? ToFloat(dy[from]) : 0.0f;
    const int window = argmax[from];
    const P patch(p, place, x);
#pragma unroll
    for (int tap = 0; tap < kTaps; ++tap) {
      sums[tap] += d * patch.At(p, tap / (KW * C) + window / 2, tap / C % KW + window % 2, tap % C);
    }
    sums[kTaps] += d;
  }
  __shared__ float shared[kWarps][kTaps + 1][kWarp];
#pragma unroll
  for (int tap = 0; tap <= kTaps; ++tap) shared[threadIdx.y][tap][threadIdx.x] = sums[tap];
  __syncthreads();
  for (int tap = static_cast<int>(threadIdx.y); mine && tap <= kTaps; tap += kWarps) {
    float total = 0;
    for (int warp = 0; warp < kWarps; ++warp) total += shared[warp][tap][threadIdx.x];
    partial[(static_cast<int64_t>(blockIdx.x) * (kTaps + 1) + tap) * p.filters + f] = total;
  }
}

// Sums partial [splits, weights + filters] over the splits, in order, into dkernel [weights] and, unless it
// is null, dbias [filters]. One block for 32 columns; each warp walks along rows. Deterministic.
__global__ void SumSplits(int64_t weights, int64_t filters, int64_t splits, const float* partial,
                          float* dkernel, float* dbias) {
  const int64_t columns = weights + filters;
  const int64_t column = static_cast<int64_t>(blockIdx.x) * kWarp + threadIdx.x;
  float sum = 0;
  if (column < columns) {
#pragma unroll 4
    for (int64_t split = threadIdx.y; split < splits; split += kSumWarps) {
      sum += partial[split * columns + column];
    }
  }
  __shared__ float shared[kSumWarps][kWarp];
  shared[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y > 0 || column >= columns) return;
  float total = 0;
  for (int warp = 0; warp < kSumWarps; ++warp) total += shared[warp][threadIdx.x];
  if (column < weights) {
    dkernel[column] = total;
  } else if (dbias != nullptr) {
    dbias[column - weights] = total;
  }
}

template <int KH, int KW, int C, typename T>
class FirstPooledConv2D final : public LinearOp {
 public:
  static absl::StatusOr<std::unique_ptr<LinearOp>> Create(Context& context,
                                                          const PooledConvolutionParams& params) {
    auto op = std::unique_ptr<FirstPooledConv2D>(new FirstPooledConv2D(context, params));
    CAIRN_ASSIGN_OR_RETURN(op->argmax_,
                           context.Allocate(CeilDiv(op->output_.shape.num_elements(), 4), "pooled places"));
    CAIRN_RETURN_IF_ERROR(context.ReserveScratch(int64_t{op->splits_} * (KH * KW * C + 1) *
                                                 params.convolution.shape.f * int64_t{sizeof(float)}));
    return op;
  }

  const TensorDesc& output() const override { return output_; }

  absl::Status Forward(const float* x, const float* kernel, const float* bias, float* y) override {
    const dim3 grid(std::min<unsigned>(GridFor(places_.count, kWarps), most_blocks_), FilterBlocks());
    return CAIRN_LAUNCH((FirstForward<KH, KW, C, T>), grid, dim3(kWarp, kWarps), 0, context_.stream(),
                        places_, x, kernel, bias, As<T>(y), argmax());
  }

  absl::Status Backward(const float* x, const float* /*kernel*/, const float* y, float* dy, float* /*dx*/,
                        float* dkernel, float* dbias) override {
    auto* const partial = static_cast<float*>(context_.scratch());
    CAIRN_RETURN_IF_ERROR(CAIRN_LAUNCH((FirstBackward<KH, KW, C, T>), dim3(splits_, FilterBlocks()),
                                       dim3(kWarp, kWarps), 0, context_.stream(), places_, x, As<T>(y),
                                       argmax(), As<T>(dy), partial));
    const int64_t weights = KH * KW * C * int64_t{places_.filters}, columns = weights + places_.filters;
    return CAIRN_LAUNCH(SumSplits, static_cast<unsigned>(CeilDiv(columns, kWarp)), dim3(kWarp, kSumWarps), 0,
                        context_.stream(), weights, places_.filters, splits_, partial, dkernel, dbias);
  }

 private:
  FirstPooledConv2D(Context& context, const PooledConvolutionParams& params)
      : context_(context),
        output_({.shape = {params.convolution.shape.n, params.pooled_h(), params.pooled_w(),
                           params.convolution.shape.f},
                 .type = params.convolution.type}),
        places_({.count = static_cast<uint32_t>(output_.shape.num_elements() / output_.shape[3]),
                 .ph = static_cast<uint32_t>(params.pooled_h()),
                 .pw = static_cast<uint32_t>(params.pooled_w()),
                 .h = static_cast<int>(params.convolution.shape.h),
                 .w = static_cast<int>(params.convolution.shape.w),
                 .pad_top = static_cast<int>(params.convolution.shape.pad_top),
                 .pad_left = static_cast<int>(params.convolution.shape.pad_left),
                 .filters = static_cast<int>(params.convolution.shape.f)}),
        // Only a few blocks per multiprocessor, so that the weights are read rarely and there are few partial
        // sums.
        most_blocks_(static_cast<unsigned>(context.multiprocessors()) * 8),
        splits_(std::min<unsigned>(GridFor(places_.count, kWarps * 4),
                                   static_cast<unsigned>(context.multiprocessors()) * 2)) {}

  unsigned FilterBlocks() const { return static_cast<unsigned>(CeilDiv(places_.filters, kWarp)); }
  uint8_t* argmax() const { return reinterpret_cast<uint8_t*>(argmax_->data()); }

  Context& context_;
  const TensorDesc output_;
  const PooledPlaces places_;
  const unsigned most_blocks_, splits_;
  std::unique_ptr<DeviceMemory> argmax_;  // a byte for each output
};

template <int KH, int KW, int C>
absl::StatusOr<std::unique_ptr<LinearOp>> MakeSized(Context& context, const PooledConvolutionParams& params) {
  return VisitType(params.convolution.type, [&](auto* p) {
    return FirstPooledConv2D<KH, KW, C, std::remove_pointer_t<decltype(p)>>::Create(context, params);
  });
}

}  // namespace

absl::StatusOr<std::unique_ptr<LinearOp>> MakeFirstPooledConv2D(Context& context,
                                                                const PooledConvolutionParams& params) {
  const ConvolutionShape& s = params.convolution.shape;
  const bool fits = !params.needs_input_gradient && params.input.type == ElementType::kFloat32 &&
                    params.pool_h == 2 && params.pool_w == 2 && s.groups == 1 && s.stride_h == 1 &&
                    s.stride_w == 1 && s.dilation_h == 1 && s.dilation_w == 1 &&
                    s.source_elements() < int64_t{1} << 31 && s.destination_elements() < int64_t{1} << 31;
  if (fits && s.kh == 3 && s.kw == 3 && s.c == 1) return MakeSized<3, 3, 1>(context, params);
  if (fits && s.kh == 3 && s.kw == 3 && s.c == 3) return MakeSized<3, 3, 3>(context, params);
  if (fits && s.kh == 5 && s.kw == 5 && s.c == 1) return MakeSized<5, 5, 1>(context, params);
  return absl::UnimplementedError("a first convolution of this size is not supported");
}

}  // namespace cairn::kernels::cuda
