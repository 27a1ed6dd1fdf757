// Means over the steps of a sequence that a mask counts.
#include <cstdint>
#include <memory>
#include <type_traits>

#include "common/core/status.h"
#include "kernels/cuda/blocks/element.h"
#include "kernels/cuda/blocks/launch.h"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/runtime/context.h"
#include "kernels/step_masks.h"

namespace cairn::kernels::cuda {
namespace {

// y [n, channels] from x [n, steps, channels] and mask [n, steps]: one thread for each element of y, which adds up its
// steps in order. Deterministic.
template <typename T>
__global__ void AverageSteps(int64_t count, int64_t steps, int64_t channels, const T* x, const float* mask,
                             T* y) {
  for (int64_t i = CAIRN_GLOBAL_THREAD; i < count; i += CAIRN_GLOBAL_THREADS) {
    const int64_t example = i / channels, channel = i % channels;
    float sum = 0, counted = 0;
    for (int64_t row = example * steps; row < (example + 1) * steps; ++row) {
      sum += ToFloat(x[row * channels + channel]) * mask[row];
      counted += mask[row];
    }
    y[i] = FromFloat<T>(sum / counted);
  }
}

// dx [n, steps, channels] from dy [n, channels], with a thread for each element of dy. Deterministic.
template <typename T>
__global__ void SpreadMeans(int64_t count, int64_t steps, int64_t channels, const float* mask, const T* dy,
                            T* dx) {
  for (int64_t i = CAIRN_GLOBAL_THREAD; i < count; i += CAIRN_GLOBAL_THREADS) {
    const int64_t example = i / channels, channel = i % channels;
    float counted = 0;
    for (int64_t row = example * steps; row < (example + 1) * steps; ++row) counted += mask[row];
    const float each = ToFloat(dy[i]) / counted;
    for (int64_t row = example * steps; row < (example + 1) * steps; ++row)
      dx[row * channels + channel] = FromFloat<T>(each * mask[row]);
  }
}

template <typename T>
class CudaMaskedMean final : public NaryOp {
 public:
  CudaMaskedMean(Context& context, const TensorDesc& input)
      : context_(context),
        output_(input.WithShape({input.shape[0], input.shape[2]})),
        steps_(input.shape[1]) {}

  const TensorDesc& output() const override { return output_; }

  absl::Status Forward(absl::Span<const float* const> xs, float* y) override {
    return CAIRN_LAUNCH((AverageSteps<T>), GridFor(count()), kBlock, 0, context_.stream(), count(), steps_,
                        output_.shape[1], As<T>(xs[0]), xs[1], As<T>(y));
  }
  absl::Status Backward(absl::Span<const float* const> xs, const float* dy,
                        absl::Span<float* const> dxs) override {
    if (dxs[0] == nullptr) return absl::OkStatus();
    return CAIRN_LAUNCH((SpreadMeans<T>), GridFor(count()), kBlock, 0, context_.stream(), count(), steps_,
                        output_.shape[1], xs[1], As<T>(dy), As<T>(dxs[0]));
  }

 private:
  int64_t count() const { return output_.shape.num_elements(); }

  Context& context_;
  const TensorDesc output_;
  const int64_t steps_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<NaryOp>> MakeMaskedMean(Context& context, const MaskedMeanParams& params) {
  CAIRN_RETURN_IF_ERROR(Validate(params));
  return VisitType(params.input.type, [&](auto* p) -> std::unique_ptr<NaryOp> {
    return std::make_unique<CudaMaskedMean<std::remove_pointer_t<decltype(p)>>>(context, params.input);
  });
}

}  // namespace cairn::kernels::cuda
