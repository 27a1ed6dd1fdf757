// A convolution by whichever implementation is available, and pooling by our own kernels. In the forward
// pass, the unpooled image is written once and read once. The backward pass never reads it, and computes its
// gradient and the sums for the bias in one pass from the pooled gradient.
#include <optional>
#include <type_traits>
#include <utility>

#include "common/core/status.h"
#include "kernels/cuda/blocks/columns.h"
#include "kernels/cuda/blocks/element.h"
#include "kernels/cuda/blocks/launch.h"
#include "kernels/cuda/blocks/rows.h"
#include "kernels/cuda/linear/convert.h"
#include "kernels/cuda/linear/pooled_conv2d.h"
#include "kernels/formulas.h"

namespace cairn::kernels::cuda {
namespace {

struct PoolShape {
  int64_t n = 0, h = 0, w = 0, c = 0;  // the unpooled image
  int64_t pool_h = 0, pool_w = 0;
  int64_t ph = 0, pw = 0;  // the pooled image
};

// y = relu(the maximum of a window), which equals the maximum of relu(window). One thread for each pooled
// element; adjacent threads have adjacent channels. argmax: the index of the first maximum in the window, row
// by row. Deterministic.
template <typename T>
__global__ void Pool(PoolShape s, const T* x, T* y, uint8_t* argmax) {
  const int64_t elements = s.n * s.ph * s.pw * s.c;
  for (int64_t i = CAIRN_GLOBAL_THREAD; i < elements; i += CAIRN_GLOBAL_THREADS) {
    const int64_t c = i % s.c, pw = i / s.c % s.pw, ph = i / s.c / s.pw % s.ph, n = i / s.c / s.pw / s.ph;
    const T* const corner = x + ((n * s.h + ph * s.pool_h) * s.w + pw * s.pool_w) * s.c + c;
    float largest = ToFloat(corner[0]);
    int64_t at = 0;
    for (int64_t k = 1; k < s.pool_h * s.pool_w; ++k) {
      const float value = ToFloat(corner[(k / s.pool_w * s.w + k % s.pool_w) * s.c]);
      if (IsLarger(value, largest)) {
        largest = value;
        at = k;
      }
    }
    y[i] = FromFloat<T>(Relu(largest));
    argmax[i] = static_cast<uint8_t>(at);
  }
}

// The plan's rows are the windows, including those cut off at the edges, whose gradients are 0. Each thread
// writes dx for its windows and sums what it writes: dbias [c] at any address, or null. Deterministic.
template <typename T, int kUnit>
__global__ void Unpool(ColumnPlan plan, PoolShape s, const T* y, const T* dy, const uint8_t* argmax, T* dx,
                       Pair* partials, unsigned* counters, float* dbias) {
  const int64_t c = plan.unit() * kUnit;
  const int64_t rows = CeilDiv(s.h, s.pool_h), columns = CeilDiv(s.w, s.pool_w);
  Pair sums[kUnit];
#pragma unroll
  for (int k = 0; k < kUnit; ++k) sums[k] = {0, 0};
  ForChunks<1>(plan, [&](auto, int64_t window) {
    const int64_t pw = window % columns, ph = window / columns % rows, n = window / columns / rows;
    float d[kUnit];
    int at[kUnit];
#pragma unroll
    for (int k = 0; k < kUnit; ++k) {
      d[k] = 0;
      at[k] = 0;
    }
    if (ph < s.ph && pw < s.pw) {
      const int64_t from = ((n * s.ph + ph) * s.pw + pw) * s.c + c;
      const auto value = Load<kUnit>(y + from), gradient = Load<kUnit>(dy + from);
      const auto place = Load<kUnit>(argmax + from);
#pragma unroll
      for (int k = 0; k < kUnit; ++k) {
        if (ToFloat(value.at[k]) > 0) d[k] = ToFloat(gradient.at[k]);
        at[k] = place.at[k];
        sums[k].a += d[k];
      }
    }
    const int64_t top = ph * s.pool_h, left = pw * s.pool_w;
    T* const corner = dx + ((n * s.h + top) * s.w + left) * s.c + c;
    for (int64_t i = 0; i < s.pool_h && top + i < s.h; ++i) {
      for (int64_t j = 0; j < s.pool_w && left + j < s.w; ++j) {
        const auto here = static_cast<int>(i * s.pool_w + j);
        Pack<T, kUnit> values;
#pragma unroll
        for (int k = 0; k < kUnit; ++k) {
          values.at[k] = FromFloat<T>(at[k] == here ? d[k] : 0.0f);
        }
        Store(corner + (i * s.w + j) * s.c, values);
      }
    }
  });
  if (dbias == nullptr) return;
  float count = 1;
  if (!MergeColumns<MergeSums>(plan, count, sums, partials, counters)) return;
  if (plan.unit() >= plan.units || plan.thread_row() > 0) return;
#pragma unroll
  for (int k = 0; k < kUnit; ++k) dbias[c + k] = sums[k].a;
}

template <typename T, int kUnit>
class PooledConv2D final : public LinearOp {
 public:
  static absl::StatusOr<std::unique_ptr<LinearOp>> Create(Context& context,
                                                          const PooledConvolutionParams& params) {
    const ConvolutionShape& shape = params.convolution.shape;
    auto op = std::unique_ptr<PooledConv2D>(new PooledConv2D(context, params));
    CAIRN_ASSIGN_OR_RETURN(op->input_,
                           ConvertedInput::Create(context, params.input, params.needs_input_gradient));
    ConvolutionParams convolution = params.convolution;
    convolution.relu = false;  // relu follows the pooling
    CAIRN_ASSIGN_OR_RETURN(op->convolution_, MakeConvolution(context, convolution));
    const TensorDesc unpooled = {.shape = {shape.destination_elements()}, .type = params.convolution.type};
    CAIRN_ASSIGN_OR_RETURN(op->unpooled_, context.Allocate(unpooled.num_floats(), "unpooled output"));
    CAIRN_ASSIGN_OR_RETURN(op->argmax_,
                           context.Allocate(CeilDiv(op->output_.shape.num_elements(), 4), "pooled places"));
    CAIRN_RETURN_IF_ERROR(context.ReserveScratch(op->plan_.partial_bytes()));
    CAIRN_ASSIGN_OR_RETURN(op->counters_, context.Allocate(op->plan_.tiles, "pooled convolution: counters"));
    return op;
  }

  const TensorDesc& output() const override { return output_; }

  absl::Status Forward(const float* x, const float* kernel, const float* bias, float* y) override {
    CAIRN_RETURN_IF_ERROR(input_->Convert(x));
    CAIRN_RETURN_IF_ERROR(convolution_->SetKernel(kernel));
    CAIRN_RETURN_IF_ERROR(convolution_->Forward(input_->Of(x), bias, unpooled_->data()));
    return CAIRN_LAUNCH(Pool<T>, GridFor(output_.shape.num_elements()), kBlock, 0, context_.stream(), pool_,
                        As<T>(unpooled_->data()), As<T>(y), argmax());
  }

  absl::Status Backward(const float* x, const float* /*kernel*/, const float* y, float* dy, float* dx,
                        float* dkernel, float* dbias) override {
    // Uses the memory of the unpooled image, which is not needed any more.
    float* const gradient = unpooled_->data();
    CAIRN_RETURN_IF_ERROR(CAIRN_LAUNCH((Unpool<T, kUnit>), plan_.grid(), kBlock, 0, context_.stream(), plan_,
                                       pool_, As<T>(y), As<T>(dy), argmax(), As<T>(gradient),
                                       static_cast<Pair*>(context_.scratch()),
                                       reinterpret_cast<unsigned*>(counters_->data()), dbias));
    CAIRN_RETURN_IF_ERROR(convolution_->BackwardKernel(input_->Of(x), gradient, dkernel));
    if (dx == nullptr) return absl::OkStatus();
    CAIRN_RETURN_IF_ERROR(convolution_->BackwardSource(gradient, input_->GradientOf(dx)));
    return input_->ConvertGradient(dx);
  }

 private:
  PooledConv2D(Context& context, const PooledConvolutionParams& params)
      : context_(context),
        output_({.shape = {params.convolution.shape.n, params.pooled_h(), params.pooled_w(),
                           params.convolution.shape.f},
                 .type = params.convolution.type}),
        pool_({.n = params.convolution.shape.n,
               .h = params.convolution.shape.oh,
               .w = params.convolution.shape.ow,
               .c = params.convolution.shape.f,
               .pool_h = params.pool_h,
               .pool_w = params.pool_w,
               .ph = params.pooled_h(),
               .pw = params.pooled_w()}),
        plan_(ColumnPlan::Make(pool_.n * CeilDiv(pool_.h, pool_.pool_h) * CeilDiv(pool_.w, pool_.pool_w),
                               pool_.c, kUnit, 2 * context.multiprocessors(), kMinWindows)) {}

  static constexpr int64_t kMinWindows = 8;  // windows per thread

  uint8_t* argmax() const { return reinterpret_cast<uint8_t*>(argmax_->data()); }

  Context& context_;
  const TensorDesc output_;
  const PoolShape pool_;
  const ColumnPlan plan_;  // [windows, channels]
  std::optional<ConvertedInput> input_;
  std::unique_ptr<Convolution> convolution_;
  std::unique_ptr<DeviceMemory> unpooled_;  // the unpooled image, then its gradient
  std::unique_ptr<DeviceMemory> argmax_;    // a byte for each output
  std::unique_ptr<DeviceMemory> counters_;  // [tiles]
};

}  // namespace

absl::StatusOr<std::unique_ptr<LinearOp>> MakePooledConv2D(Context& context,
                                                           const PooledConvolutionParams& params) {
  if (params.pool_h * params.pool_w > 256 || params.pooled_h() < 1 || params.pooled_w() < 1) {
    return absl::UnimplementedError(
        "pooling windows of more than 256 elements, or larger than the image, are not supported");
  }
  auto first = MakeFirstPooledConv2D(context, params);
  if (!absl::IsUnimplemented(first.status())) return first;
  return VisitType(params.convolution.type, [&](auto* p) {
    using T = std::remove_pointer_t<decltype(p)>;
    return VisitUnit<T>(params.convolution.shape.f, [&](auto unit) {
      return PooledConv2D<T, decltype(unit)::value>::Create(context, params);
    });
  });
}

}  // namespace cairn::kernels::cuda
