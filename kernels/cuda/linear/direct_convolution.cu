// Convolutions computed from their definition, with one thread for each element that is written.
#include <algorithm>
#include <type_traits>
#include <utility>

#include "kernels/cuda/blocks/element.h"
#include "kernels/cuda/blocks/launch.h"
#include "kernels/cuda/linear/convolution.h"
#include "kernels/cuda/runtime/context.h"
#include "kernels/formulas.h"

namespace cairn::kernels::cuda {
namespace {

// One thread for each y[n, oh, ow, f]. Adjacent threads share x and read adjacent kernel elements.
// Deterministic.
template <typename T>
__global__ void DirectForward(ConvolutionShape s, bool relu, const T* x, const float* kernel,
                              const float* bias, T* y) {
  const int64_t group_channels = s.c / s.groups, group_filters = s.f / s.groups;
  for (int64_t i = CAIRN_GLOBAL_THREAD; i < s.destination_elements(); i += CAIRN_GLOBAL_THREADS) {
    const int64_t f = i % s.f, ow = i / s.f % s.ow, oh = i / s.f / s.ow % s.oh, n = i / s.f / s.ow / s.oh;
    const int64_t first_channel = f / group_filters * group_channels;
    float sum = bias == nullptr ? 0.0f : bias[f];
    for (int64_t kh = 0; kh < s.kh; ++kh) {
      const int64_t h = oh * s.stride_h - s.pad_top + kh * s.dilation_h;
      if (h < 0 || h >= s.h) continue;
      for (int64_t kw = 0; kw < s.kw; ++kw) {
        const int64_t w = ow * s.stride_w - s.pad_left + kw * s.dilation_w;
        if (w < 0 || w >= s.w) continue;
        const T* const from = x + ((n * s.h + h) * s.w + w) * s.c + first_channel;
        const float* const weights = kernel + (kh * s.kw + kw) * group_channels * s.f + f;
        for (int64_t c = 0; c < group_channels; ++c) sum += ToFloat(from[c]) * weights[c * s.f];
      }
    }
    y[i] = FromFloat<T>(relu ? Relu(sum) : sum);
  }
}

// One thread for each dx[n, h, w, c]. Deterministic.
template <typename T>
__global__ void DirectBackwardSource(ConvolutionShape s, const T* dy, const float* kernel, T* dx) {
  const int64_t group_channels = s.c / s.groups, group_filters = s.f / s.groups;
  for (int64_t i = CAIRN_GLOBAL_THREAD; i < s.source_elements(); i += CAIRN_GLOBAL_THREADS) {
    const int64_t c = i % s.c, w = i / s.c % s.w, h = i / s.c / s.w % s.h, n = i / s.c / s.w / s.h;
    const int64_t first_filter = c / group_channels * group_filters;
    float sum = 0;
    for (int64_t kh = 0; kh < s.kh; ++kh) {
      const int64_t from_h = h + s.pad_top - kh * s.dilation_h, oh = from_h / s.stride_h;
      if (from_h < 0 || oh * s.stride_h != from_h || oh >= s.oh) continue;
      for (int64_t kw = 0; kw < s.kw; ++kw) {
        const int64_t from_w = w + s.pad_left - kw * s.dilation_w, ow = from_w / s.stride_w;
        if (from_w < 0 || ow * s.stride_w != from_w || ow >= s.ow) continue;
        const T* const from = dy + ((n * s.oh + oh) * s.ow + ow) * s.f + first_filter;
        const float* const weights =
            kernel + ((kh * s.kw + kw) * group_channels + c % group_channels) * s.f + first_filter;
        for (int64_t f = 0; f < group_filters; ++f) sum += ToFloat(from[f]) * weights[f];
      }
    }
    dx[i] = FromFloat<T>(sum);
  }
}

// The positions of the destination are divided into splits. Each split sums its part of dkernel: partial
// [splits, kernel elements]. One thread for each kernel element; blockIdx.y is the split. Deterministic.
template <typename T>
__global__ void DirectBackwardKernel(ConvolutionShape s, int64_t places_per_split, const T* x, const T* dy,
                                     float* partial) {
  const int64_t group_channels = s.c / s.groups, group_filters = s.f / s.groups;
  const int64_t places = s.n * s.oh * s.ow;
  const int64_t begin = blockIdx.y * places_per_split;
  const int64_t end = begin + places_per_split < places ? begin + places_per_split : places;
  for (int64_t i = CAIRN_GLOBAL_THREAD; i < s.kernel_elements(); i += CAIRN_GLOBAL_THREADS) {
    const int64_t f = i % s.f, c = i / s.f % group_channels;
    const int64_t kw = i / s.f / group_channels % s.kw, kh = i / s.f / group_channels / s.kw;
    const int64_t channel = f / group_filters * group_channels + c;
    float sum = 0;
    for (int64_t place = begin; place < end; ++place) {
      const int64_t ow = place % s.ow, oh = place / s.ow % s.oh, n = place / s.ow / s.oh;
      const int64_t h = oh * s.stride_h - s.pad_top + kh * s.dilation_h;
      const int64_t w = ow * s.stride_w - s.pad_left + kw * s.dilation_w;
      if (h < 0 || h >= s.h || w < 0 || w >= s.w) continue;
      sum += ToFloat(x[((n * s.h + h) * s.w + w) * s.c + channel]) * ToFloat(dy[place * s.f + f]);
    }
    partial[blockIdx.y * s.kernel_elements() + i] = sum;
  }
}

// Adds the partial sums of all splits, in order. One thread for each element. Deterministic.
__global__ void SumSplits(int64_t elements, int64_t splits, const float* partial, float* sum) {
  for (int64_t i = CAIRN_GLOBAL_THREAD; i < elements; i += CAIRN_GLOBAL_THREADS) {
    float total = 0;
    for (int64_t split = 0; split < splits; ++split) total += partial[split * elements + i];
    sum[i] = total;
  }
}

template <typename T>
class DirectConvolution final : public Convolution {
 public:
  static absl::StatusOr<std::unique_ptr<Convolution>> Create(Context& context,
                                                             const ConvolutionParams& params) {
    auto convolution = std::unique_ptr<DirectConvolution>(new DirectConvolution(context, params));
    CAIRN_RETURN_IF_ERROR(context.ReserveScratch(convolution->splits_ * params.shape.kernel_elements() *
                                                 int64_t{sizeof(float)}));
    return convolution;
  }

  absl::Status SetKernel(const float* kernel) override {
    kernel_ = kernel;
    return absl::OkStatus();
  }
  absl::Status Forward(const void* source, const float* bias, void* destination) override {
    return CAIRN_LAUNCH(DirectForward<T>, GridFor(shape_.destination_elements()), kBlock, 0,
                        context_.stream(), shape_, relu_, static_cast<const T*>(source), kernel_, bias,
                        static_cast<T*>(destination));
  }
  absl::Status BackwardSource(const void* ddestination, void* dsource) override {
    return CAIRN_LAUNCH(DirectBackwardSource<T>, GridFor(shape_.source_elements()), kBlock, 0,
                        context_.stream(), shape_, static_cast<const T*>(ddestination), kernel_,
                        static_cast<T*>(dsource));
  }
  absl::Status BackwardKernel(const void* source, const void* ddestination, float* dkernel) override {
    const int64_t elements = shape_.kernel_elements();
    const int64_t places = shape_.n * shape_.oh * shape_.ow;
    float* const partial = splits_ == 1 ? dkernel : static_cast<float*>(context_.scratch());
    const dim3 grid(GridFor(elements), static_cast<unsigned>(splits_));
    CAIRN_RETURN_IF_ERROR(CAIRN_LAUNCH(DirectBackwardKernel<T>, grid, kBlock, 0, context_.stream(), shape_,
                                       CeilDiv(places, splits_), static_cast<const T*>(source),
                                       static_cast<const T*>(ddestination), partial));
    if (splits_ == 1) return absl::OkStatus();
    return CAIRN_LAUNCH(SumSplits, GridFor(elements), kBlock, 0, context_.stream(), elements, splits_,
                        partial, dkernel);
  }

 private:
  DirectConvolution(Context& context, const ConvolutionParams& params)
      : context_(context), shape_(params.shape), relu_(params.relu) {
    // Enough threads for the whole card, but at least 256 positions per split.
    const int64_t wanted = CeilDiv(int64_t{context.multiprocessors()} * 2048, shape_.kernel_elements());
    const int64_t most = CeilDiv(shape_.n * shape_.oh * shape_.ow, 256);
    splits_ = std::clamp<int64_t>(wanted, 1, std::min<int64_t>(most, 1024));
  }

  Context& context_;
  const ConvolutionShape shape_;
  const bool relu_;
  int64_t splits_ = 1;
  const float* kernel_ = nullptr;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Convolution>> MakeDirectConvolution(Context& context,
                                                                   const ConvolutionParams& params) {
  return VisitType(params.type, [&](auto* p) {
    return DirectConvolution<std::remove_pointer_t<decltype(p)>>::Create(context, params);
  });
}

}  // namespace cairn::kernels::cuda
