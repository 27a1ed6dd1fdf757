// Standardization by a given mean and variance: Keras' Normalization.
#include <type_traits>

#include "common/core/status.h"
#include "kernels/cuda/blocks/element.h"
#include "kernels/cuda/blocks/launch.h"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/runtime/context.h"
#include "kernels/standardize.h"

namespace cairn::kernels::cuda {
namespace {

// One thread for each element, grid-strided; `mean` and `variance` [width]. Deterministic.
template <typename T>
__global__ void StandardizeForward(int64_t count, int64_t width, float epsilon, bool invert,
                                   const float* mean, const float* variance, const T* x, T* y) {
  for (int64_t i = CAIRN_GLOBAL_THREAD; i < count; i += CAIRN_GLOBAL_THREADS) {
    const int64_t column = i % width;
    y[i] = FromFloat<T>(Standardized(ToFloat(x[i]), mean[column], variance[column], epsilon, invert));
  }
}

// Computes dx from dy. One thread for each element, grid-strided. Deterministic.
template <typename T>
__global__ void StandardizeBackward(int64_t count, int64_t width, float epsilon, bool invert,
                                    const float* variance, const T* dy, T* dx) {
  for (int64_t i = CAIRN_GLOBAL_THREAD; i < count; i += CAIRN_GLOBAL_THREADS)
    dx[i] = FromFloat<T>(StandardizedGradient(ToFloat(dy[i]), variance[i % width], epsilon, invert));
}

template <typename T>
class CudaStandardize final : public Standardize {
 public:
  CudaStandardize(Context& context, const StandardizeParams& params)
      : context_(context), params_(params), count_(params.input.shape.num_elements()) {}

  const TensorDesc& output() const override { return params_.input; }

  absl::Status Forward(const float* x, const float* mean, const float* variance, float* y) override {
    return CAIRN_LAUNCH(StandardizeForward<T>, GridFor(count_), kBlock, 0, context_.stream(), count_,
                        params_.width, params_.epsilon, params_.invert, mean, variance, As<T>(x), As<T>(y));
  }
  absl::Status Backward(const float* variance, const float* dy, float* dx) override {
    return CAIRN_LAUNCH(StandardizeBackward<T>, GridFor(count_), kBlock, 0, context_.stream(), count_,
                        params_.width, params_.epsilon, params_.invert, variance, As<T>(dy), As<T>(dx));
  }

 private:
  Context& context_;
  const StandardizeParams params_;
  const int64_t count_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Standardize>> MakeStandardize(Context& context,
                                                             const StandardizeParams& params) {
  CAIRN_RETURN_IF_ERROR(Validate(params));
  return VisitType(params.input.type, [&](auto* p) -> absl::StatusOr<std::unique_ptr<Standardize>> {
    return std::make_unique<CudaStandardize<std::remove_pointer_t<decltype(p)>>>(context, params);
  });
}

}  // namespace cairn::kernels::cuda
