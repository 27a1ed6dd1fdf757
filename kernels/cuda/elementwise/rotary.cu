// Rotates pairs of elements by angles that depend on the step.
#include <type_traits>
#include <utility>
#include <vector>

#include "common/core/status.h"
#include "kernels/cuda/blocks/element.h"
#include "kernels/cuda/blocks/launch.h"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/runtime/context.h"
#include "kernels/rotary.h"

namespace cairn::kernels::cuda {
namespace {

struct RotaryExtents {
  int64_t pairs = 0;  // of x
  int64_t steps = 0;
  int64_t first = 0;      // the first step
  int64_t all_steps = 0;  // those that have factors
  int64_t vectors = 0;    // of one step of an example
  int64_t half = 0;       // pairs of a vector
};

// One thread for each pair of x [examples, steps, vectors, 2 * half], grid-strided. `factors` are [2, all_steps, half].
// y may be x. Deterministic.
template <typename T>
__global__ void RotatePairs(RotaryExtents e, float direction, const float* factors, const T* x, T* y) {
  for (int64_t i = CAIRN_GLOBAL_THREAD; i < e.pairs; i += CAIRN_GLOBAL_THREADS) {
    const int64_t vector = i / e.half, pair = i - vector * e.half;
    const int64_t factor = (e.first + vector / e.vectors % e.steps) * e.half + pair;
    const int64_t first = vector * 2 * e.half + pair;
    const float a = ToFloat(x[first]), b = ToFloat(x[first + e.half]);
    const float cosine = factors[factor], sine = direction * factors[factor + e.all_steps * e.half];
    y[first] = FromFloat<T>(a * cosine - b * sine);
    y[first + e.half] = FromFloat<T>(b * cosine + a * sine);
  }
}

template <typename T>
class CudaRotary final : public UnaryOp {
 public:
  static absl::StatusOr<std::unique_ptr<UnaryOp>> Create(Context& context, const RotaryParams& params) {
    std::unique_ptr<CudaRotary> op(new CudaRotary(context, params));
    const auto count = static_cast<int64_t>(op->host_factors_.size());
    CAIRN_ASSIGN_OR_RETURN(op->factors_, context.Allocate(count, "factors of rotations"));
    CAIRN_RETURN_IF_ERROR(
        context.CopyToDevice(op->host_factors_.data(), op->factors_->data(), count * int64_t{sizeof(float)}));
    return op;
  }

  const TensorDesc& output() const override { return params_.input; }
  absl::Status Forward(const float* x, float* y) override { return Rotate(1, x, y); }
  absl::Status Backward(const float*, const float*, const float* dy, float* dx) override {
    return Rotate(-1, dy, dx);
  }

 private:
  CudaRotary(Context& context, const RotaryParams& params)
      : context_(context), params_(params), host_factors_(RotaryFactors(params)) {
    extents_.pairs = params.input.shape.num_elements() / 2;
    extents_.steps = params.input.shape[1];
    extents_.all_steps = RotarySteps(params);
    extents_.half = static_cast<int64_t>(params.frequencies.size());
    extents_.vectors = extents_.pairs / params.input.shape[0] / extents_.steps / extents_.half;
  }

  absl::Status Rotate(float direction, const float* x, float* y) {
    CAIRN_ASSIGN_OR_RETURN(extents_.first, FirstRotaryStep(params_));
    return CAIRN_LAUNCH(RotatePairs<T>, GridFor(extents_.pairs), kBlock, 0, context_.stream(), extents_,
                        direction, factors_->data(), As<T>(x), As<T>(y));
  }

  Context& context_;
  const RotaryParams params_;
  RotaryExtents extents_;
  // The copy on the host must stay because the device may read it after CopyToDevice() has returned.
  const std::vector<float> host_factors_;
  std::unique_ptr<DeviceMemory> factors_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<UnaryOp>> MakeRotary(Context& context, const RotaryParams& params) {
  CAIRN_RETURN_IF_ERROR(Validate(params));
  return VisitType(params.input.type, [&](auto* p) {
    return CudaRotary<std::remove_pointer_t<decltype(p)>>::Create(context, params);
  });
}

}  // namespace cairn::kernels::cuda
