// The maximum, mean or sum of each channel of an image, to [n, c].
#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/cuda/blocks/element.h"
#include "kernels/cuda/blocks/launch.h"
#include "kernels/cuda/blocks/pack.h"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/runtime/context.h"
#include "kernels/formulas.h"

namespace cairn::kernels::cuda {
namespace {

// A block takes 32 adjacent channels of one example: threadIdx.x is the channel, and each threadIdx.y
// processes its own part of the pixels, in order.
constexpr int kChannels = 32, kParts = 8;

struct PooledImages {
  int64_t examples, pixels, channels;
  float divisor;  // of a sum

  __host__ __device__ int64_t tiles() const { return examples * ((channels + kChannels - 1) / kChannels); }
};

// The maximum of a part, by the rules of IsLarger().
struct Largest {
  float value;
  int64_t pixel;
  bool any;

  __device__ void Take(float candidate, int64_t at) {
    if (any && !IsLarger(candidate, value)) return;
    value = candidate;
    pixel = at;
    any = true;
  }
  // Merges the result of the part that follows.
  __device__ void Join(const Largest& next) {
    if (next.any) Take(next.value, next.pixel);
  }
};

struct Sum {
  float value;

  __device__ void Take(float x, int64_t /*at*/) { value += x; }
  __device__ void Join(const Sum& next) { value += next.value; }
};

// One block for each tile of y, grid-strided; reads x once. `pixels` [y] is written if the reduction is
// Largest. Deterministic.
template <typename T, typename Reduction>
__global__ void PoolForward(PooledImages images, const T* x, T* y, int64_t* pixels) {
  __shared__ Reduction parts[kParts][kChannels];
  const int64_t per_example = images.tiles() / images.examples;
  const int64_t per_part = (images.pixels + kParts - 1) / kParts;
  for (int64_t tile = blockIdx.x; tile < images.tiles(); tile += gridDim.x) {
    const int64_t n = tile / per_example;
    const int64_t c = (tile - n * per_example) * kChannels + threadIdx.x;
    const int64_t first = threadIdx.y * per_part;
    const int64_t last = first + per_part < images.pixels ? first + per_part : images.pixels;
    Reduction own{};
    if (c < images.channels) {
      for (int64_t pixel = first; pixel < last; ++pixel) {
        own.Take(ToFloat(x[(n * images.pixels + pixel) * images.channels + c]), pixel);
      }
    }
    parts[threadIdx.y][threadIdx.x] = own;
    __syncthreads();
    if (threadIdx.y == 0 && c < images.channels) {
      for (int part = 1; part < kParts; ++part) own.Join(parts[part][threadIdx.x]);
      const int64_t to = n * images.channels + c;
      if constexpr (std::is_same_v<Reduction, Largest>) {
        y[to] = FromFloat<T>(own.value);
        pixels[to] = own.pixel;
      } else {
        y[to] = FromFloat<T>(own.value / images.divisor);
      }
    }
    __syncthreads();  // `parts` is about to be overwritten
  }
}

// One thread for each pack of channels of dx, grid-strided. The gradient goes to the pixel of the maximum or,
// if `pixels` is null, in equal parts to all pixels. Deterministic.
template <typename T, int kCount>
__global__ void PoolBackward(PooledImages images, const Pack<T, kCount>* dy, const int64_t* pixels,
                             Pack<T, kCount>* dx) {
  const int64_t packs = images.channels / kCount, all = images.examples * images.pixels * packs;
  for (int64_t i = CAIRN_GLOBAL_THREAD; i < all; i += CAIRN_GLOBAL_THREADS) {
    const int64_t row = i / packs, n = row / images.pixels;
    const int64_t from = n * packs + i - row * packs;
    Pack<T, kCount> d = dy[from];
#pragma unroll
    for (int k = 0; k < kCount; ++k) {
      if (pixels == nullptr) {
        d.at[k] = FromFloat<T>(ToFloat(d.at[k]) / images.divisor);
      } else if (pixels[from * kCount + k] != row - n * images.pixels) {
        d.at[k] = FromFloat<T>(0.0f);
      }
    }
    dx[i] = d;
  }
}

template <typename T>
class CudaGlobalPool final : public UnaryOp {
 public:
  // `pixels` is null for the mean and the sum.
  CudaGlobalPool(Context& context, TensorDesc output, const PooledImages& images,
                 std::unique_ptr<DeviceMemory> pixels)
      : context_(context), output_(std::move(output)), images_(images), pixels_(std::move(pixels)) {}

  const TensorDesc& output() const override { return output_; }

  absl::Status Forward(const float* x, float* y) override {
    const dim3 block(kChannels, kParts);
    const unsigned grid = GridFor(images_.tiles(), 1);
    if (pixels_ == nullptr) {
      return CAIRN_LAUNCH((PoolForward<T, Sum>), grid, block, 0, context_.stream(), images_, As<T>(x),
                          As<T>(y), pixels());
    }
    return CAIRN_LAUNCH((PoolForward<T, Largest>), grid, block, 0, context_.stream(), images_, As<T>(x),
                        As<T>(y), pixels());
  }

  absl::Status Backward(const float* /*x*/, const float* /*y*/, const float* dy, float* dx) override {
    return images_.channels % kVector<T> == 0 ? BackwardBy<kVector<T>>(dy, dx) : BackwardBy<1>(dy, dx);
  }

 private:
  template <int kCount>
  absl::Status BackwardBy(const float* dy, float* dx) {
    const int64_t packs = images_.examples * images_.pixels * images_.channels / kCount;
    return CAIRN_LAUNCH((PoolBackward<T, kCount>), GridFor(packs), kBlock, 0, context_.stream(), images_,
                        (As<Pack<T, kCount>>(dy)), pixels(), (As<Pack<T, kCount>>(dx)));
  }

  int64_t* pixels() const { return pixels_ == nullptr ? nullptr : As<int64_t>(pixels_->data()); }

  Context& context_;
  const TensorDesc output_;
  const PooledImages images_;
  const std::unique_ptr<DeviceMemory> pixels_;  // int64_t [output]: the pixel of the maximum
};

}  // namespace

absl::StatusOr<std::unique_ptr<UnaryOp>> MakeGlobalPool(Context& context, Pooling pooling,
                                                        const TensorDesc& input) {
  const Shape& shape = input.shape;
  if (shape.rank() != 4 || shape.num_elements() < 1 || input.layout != Layout::kRowMajor) {
    return absl::InvalidArgumentError(
        absl::StrCat("input ", input.ToString(),
                     " is not an image: expected [batch, height, width, channels], row-major"));
  }
  const PooledImages images = {
      .examples = shape[0],
      .pixels = shape[1] * shape[2],
      .channels = shape[3],
      .divisor = pooling == Pooling::kAverage ? static_cast<float>(shape[1] * shape[2]) : 1.0f};
  const TensorDesc output = input.WithShape({shape[0], shape[3]});
  std::unique_ptr<DeviceMemory> pixels;
  if (pooling == Pooling::kMax) {
    CAIRN_ASSIGN_OR_RETURN(pixels, context.Allocate(2 * output.shape.num_elements(), "places of maxima"));
  }
  return VisitType(input.type, [&](auto* p) -> absl::StatusOr<std::unique_ptr<UnaryOp>> {
    using T = std::remove_pointer_t<decltype(p)>;
    return std::make_unique<CudaGlobalPool<T>>(context, output, images, std::move(pixels));
  });
}

}  // namespace cairn::kernels::cuda
