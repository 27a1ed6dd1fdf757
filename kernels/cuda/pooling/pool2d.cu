// The maximum or mean of every window. Adjacent threads take adjacent channels.
#include <limits>
#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/cuda/blocks/element.h"
#include "kernels/cuda/blocks/launch.h"
#include "kernels/cuda/blocks/pack.h"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/runtime/context.h"
#include "kernels/formulas.h"
#include "kernels/window.h"

namespace cairn::kernels::cuda {
namespace {

// One spatial axis.
struct Axis {
  int64_t input, output, window, stride, pad;

  // The beginning of window `o` in the image; negative if it is in the padding.
  __device__ int64_t Begin(int64_t o) const { return o * stride - pad; }
  // The part of window `o` that is inside the image.
  __device__ int64_t First(int64_t o) const { return Begin(o) < 0 ? 0 : Begin(o); }
  __device__ int64_t Last(int64_t o) const { return Begin(o) + window < input ? Begin(o) + window : input; }
  // The windows that contain position `i`.
  __device__ int64_t FirstWindow(int64_t i) const {
    return i + pad < window ? 0 : (i + pad - window) / stride + 1;
  }
  __device__ int64_t LastWindow(int64_t i) const {
    const int64_t last = (i + pad) / stride + 1;
    return last < output ? last : output;
  }
};

struct Images {
  Axis rows, columns;
  int64_t examples;
  int64_t packs = 0;  // packs of channels

  __host__ __device__ int64_t inputs() const { return examples * rows.input * columns.input * packs; }
  __host__ __device__ int64_t outputs() const { return examples * rows.output * columns.output * packs; }
};

// The position of pack `i` in images [n, height, width, packs].
struct Place {
  int64_t n, h, w, c;

  __device__ Place(int64_t i, int64_t height, int64_t width, int64_t packs) {
    const int64_t pixel = i / packs, row = pixel / width;
    c = i - pixel * packs;
    w = pixel - row * width;
    n = row / height;
    h = row - n * height;
  }
};

// One thread for each pack of y, grid-strided. Reads its window, writes y and the position of each maximum in
// the window: row * width + column. Deterministic.
template <typename T, int kCount, typename Argmax>
__global__ void MaxForward(Images images, const Pack<T, kCount>* x, Pack<T, kCount>* y,
                           Pack<Argmax, kCount>* maxima) {
  const int64_t outputs = images.outputs();
  for (int64_t i = CAIRN_GLOBAL_THREAD; i < outputs; i += CAIRN_GLOBAL_THREADS) {
    const Place at(i, images.rows.output, images.columns.output, images.packs);
    const int64_t top = images.rows.Begin(at.h), left = images.columns.Begin(at.w);
    const int64_t first_row = images.rows.First(at.h), first_column = images.columns.First(at.w);
    const int64_t last_row = images.rows.Last(at.h), last_column = images.columns.Last(at.w);
    float largest[kCount];
    Pack<Argmax, kCount> where;
    const auto first = static_cast<Argmax>((first_row - top) * images.columns.window + first_column - left);
#pragma unroll
    for (int k = 0; k < kCount; ++k) {
      largest[k] = -std::numeric_limits<float>::infinity();
      where.at[k] = first;
    }
    for (int64_t h = first_row; h < last_row; ++h) {
      const int64_t row = (at.n * images.rows.input + h) * images.columns.input;
      for (int64_t w = first_column; w < last_column; ++w) {
        const Pack<T, kCount> v = x[(row + w) * images.packs + at.c];
        const auto here = static_cast<Argmax>((h - top) * images.columns.window + w - left);
#pragma unroll
        for (int k = 0; k < kCount; ++k) {
          const float value = ToFloat(v.at[k]);
          if (IsLarger(value, largest[k])) {
            largest[k] = value;
            where.at[k] = here;
          }
        }
      }
    }
    Pack<T, kCount> v;
#pragma unroll
    for (int k = 0; k < kCount; ++k) v.at[k] = FromFloat<T>(largest[k]);
    y[i] = v;
    maxima[i] = where;
  }
}

// One thread for each pack of dx, grid-strided. Visits the windows that contain the pack's position, in
// order, and adds the gradients of those whose maximum is there. Deterministic.
template <typename T, int kCount, typename Argmax>
__global__ void MaxBackward(Images images, const Pack<T, kCount>* dy, const Pack<Argmax, kCount>* maxima,
                            Pack<T, kCount>* dx) {
  const int64_t inputs = images.inputs();
  for (int64_t i = CAIRN_GLOBAL_THREAD; i < inputs; i += CAIRN_GLOBAL_THREADS) {
    const Place at(i, images.rows.input, images.columns.input, images.packs);
    const int64_t last_row = images.rows.LastWindow(at.h), last_column = images.columns.LastWindow(at.w);
    float sum[kCount] = {};
    for (int64_t oh = images.rows.FirstWindow(at.h); oh < last_row; ++oh) {
      const int64_t row = (at.n * images.rows.output + oh) * images.columns.output;
      const int64_t in_window = (at.h - images.rows.Begin(oh)) * images.columns.window + at.w;
      for (int64_t ow = images.columns.FirstWindow(at.w); ow < last_column; ++ow) {
        const int64_t from = (row + ow) * images.packs + at.c;
        const auto here = static_cast<Argmax>(in_window - images.columns.Begin(ow));
        const Pack<Argmax, kCount> where = maxima[from];
        const Pack<T, kCount> d = dy[from];
#pragma unroll
        for (int k = 0; k < kCount; ++k) sum[k] += where.at[k] == here ? ToFloat(d.at[k]) : 0.0f;
      }
    }
    Pack<T, kCount> v;
#pragma unroll
    for (int k = 0; k < kCount; ++k) v.at[k] = FromFloat<T>(sum[k]);
    dx[i] = v;
  }
}

// Like MaxForward, but computes the mean over the part of the window inside the image.
template <typename T, int kCount>
__global__ void AverageForward(Images images, const Pack<T, kCount>* x, Pack<T, kCount>* y) {
  const int64_t outputs = images.outputs();
  for (int64_t i = CAIRN_GLOBAL_THREAD; i < outputs; i += CAIRN_GLOBAL_THREADS) {
    const Place at(i, images.rows.output, images.columns.output, images.packs);
    const int64_t first_row = images.rows.First(at.h), first_column = images.columns.First(at.w);
    const int64_t last_row = images.rows.Last(at.h), last_column = images.columns.Last(at.w);
    float sum[kCount] = {};
    for (int64_t h = first_row; h < last_row; ++h) {
      const int64_t row = (at.n * images.rows.input + h) * images.columns.input;
      for (int64_t w = first_column; w < last_column; ++w) {
        const Pack<T, kCount> v = x[(row + w) * images.packs + at.c];
#pragma unroll
        for (int k = 0; k < kCount; ++k) sum[k] += ToFloat(v.at[k]);
      }
    }
    const auto count = static_cast<float>((last_row - first_row) * (last_column - first_column));
    Pack<T, kCount> v;
#pragma unroll
    for (int k = 0; k < kCount; ++k) v.at[k] = FromFloat<T>(sum[k] / count);
    y[i] = v;
  }
}

// Like MaxBackward, but for the mean.
template <typename T, int kCount>
__global__ void AverageBackward(Images images, const Pack<T, kCount>* dy, Pack<T, kCount>* dx) {
  const int64_t inputs = images.inputs();
  for (int64_t i = CAIRN_GLOBAL_THREAD; i < inputs; i += CAIRN_GLOBAL_THREADS) {
    const Place at(i, images.rows.input, images.columns.input, images.packs);
    const int64_t last_row = images.rows.LastWindow(at.h), last_column = images.columns.LastWindow(at.w);
    float sum[kCount] = {};
    for (int64_t oh = images.rows.FirstWindow(at.h); oh < last_row; ++oh) {
      const int64_t row = (at.n * images.rows.output + oh) * images.columns.output;
      const int64_t height = images.rows.Last(oh) - images.rows.First(oh);
      for (int64_t ow = images.columns.FirstWindow(at.w); ow < last_column; ++ow) {
        const auto count = static_cast<float>(height * (images.columns.Last(ow) - images.columns.First(ow)));
        const Pack<T, kCount> d = dy[(row + ow) * images.packs + at.c];
#pragma unroll
        for (int k = 0; k < kCount; ++k) sum[k] += ToFloat(d.at[k]) / count;
      }
    }
    Pack<T, kCount> v;
#pragma unroll
    for (int k = 0; k < kCount; ++k) v.at[k] = FromFloat<T>(sum[k]);
    dx[i] = v;
  }
}

template <typename T, int kCount, typename Argmax>
class CudaMaxPool2D final : public UnaryOp {
 public:
  static absl::StatusOr<std::unique_ptr<UnaryOp>> Create(Context& context, const TensorDesc& output,
                                                         const Images& images) {
    const int64_t bytes = output.shape.num_elements() * int64_t{sizeof(Argmax)};
    CAIRN_ASSIGN_OR_RETURN(auto maxima, context.Allocate(CeilDiv(bytes, 4), "places of maxima"));
    return std::unique_ptr<UnaryOp>(new CudaMaxPool2D(context, output, images, std::move(maxima)));
  }

  const TensorDesc& output() const override { return output_; }

  absl::Status Forward(const float* x, float* y) override {
    return CAIRN_LAUNCH((MaxForward<T, kCount, Argmax>), GridFor(images_.outputs()), kBlock, 0,
                        context_.stream(), images_, (As<Pack<T, kCount>>(x)), (As<Pack<T, kCount>>(y)),
                        (As<Pack<Argmax, kCount>>(maxima_->data())));
  }
  absl::Status Backward(const float* /*x*/, const float* /*y*/, const float* dy, float* dx) override {
    return CAIRN_LAUNCH((MaxBackward<T, kCount, Argmax>), GridFor(images_.inputs()), kBlock, 0,
                        context_.stream(), images_, (As<Pack<T, kCount>>(dy)),
                        (As<Pack<Argmax, kCount>>(maxima_->data())), (As<Pack<T, kCount>>(dx)));
  }

 private:
  CudaMaxPool2D(Context& context, const TensorDesc& output, const Images& images,
                std::unique_ptr<DeviceMemory> maxima)
      : context_(context), output_(output), images_(images), maxima_(std::move(maxima)) {}

  Context& context_;
  const TensorDesc output_;
  const Images images_;
  const std::unique_ptr<DeviceMemory> maxima_;  // Argmax [output]
};

template <typename T, int kCount>
class CudaAveragePool2D final : public UnaryOp {
 public:
  CudaAveragePool2D(Context& context, const TensorDesc& output, const Images& images)
      : context_(context), output_(output), images_(images) {}

  const TensorDesc& output() const override { return output_; }

  absl::Status Forward(const float* x, float* y) override {
    return CAIRN_LAUNCH((AverageForward<T, kCount>), GridFor(images_.outputs()), kBlock, 0, context_.stream(),
                        images_, (As<Pack<T, kCount>>(x)), (As<Pack<T, kCount>>(y)));
  }
  absl::Status Backward(const float* /*x*/, const float* /*y*/, const float* dy, float* dx) override {
    return CAIRN_LAUNCH((AverageBackward<T, kCount>), GridFor(images_.inputs()), kBlock, 0, context_.stream(),
                        images_, (As<Pack<T, kCount>>(dy)), (As<Pack<T, kCount>>(dx)));
  }

 private:
  Context& context_;
  const TensorDesc output_;
  const Images images_;
};

template <typename T, int kCount>
absl::StatusOr<std::unique_ptr<UnaryOp>> Make(Context& context, const Pool2DParams& params,
                                              const TensorDesc& output, Images images) {
  images.packs = output.shape[3] / kCount;
  if (params.pooling == Pooling::kAverage) {
    return std::make_unique<CudaAveragePool2D<T, kCount>>(context, output, images);
  }
  const int64_t places = params.pool_height * params.pool_width;
  if (places - 1 <= std::numeric_limits<uint8_t>::max()) {
    return CudaMaxPool2D<T, kCount, uint8_t>::Create(context, output, images);
  }
  return CudaMaxPool2D<T, kCount, uint16_t>::Create(context, output, images);
}

}  // namespace

absl::StatusOr<std::unique_ptr<UnaryOp>> MakePool2D(Context& context, const Pool2DParams& params) {
  CAIRN_ASSIGN_OR_RETURN(const Shape shape, OutputShape(params));
  if (params.input.layout != Layout::kRowMajor) {
    return absl::InvalidArgumentError(
        absl::StrCat("pooling of ", params.input.ToString(), ": expected row-major"));
  }
  if (params.pooling == Pooling::kMax &&
      params.pool_height * params.pool_width > std::numeric_limits<uint16_t>::max()) {
    return absl::UnimplementedError(
        absl::StrCat("a pooling window of ", params.pool_height, "x", params.pool_width, " is too large"));
  }
  const Shape& input = params.input.shape;
  const auto axis = [&](int64_t extent, int64_t window, int64_t stride) {
    const Window windows = MakeWindow(extent, window, stride, params.padding);
    return Axis{extent, windows.output, window, stride, windows.pad_before};
  };
  const Images images = {.rows = axis(input[1], params.pool_height, params.stride_height),
                         .columns = axis(input[2], params.pool_width, params.stride_width),
                         .examples = input[0]};
  const TensorDesc output = params.input.WithShape(shape);
  return VisitType(params.input.type, [&](auto* p) {
    using T = std::remove_pointer_t<decltype(p)>;
    return input[3] % kVector<T> == 0 ? Make<T, kVector<T>>(context, params, output, images)
                                      : Make<T, 1>(context, params, output, images);
  });
}

}  // namespace cairn::kernels::cuda
