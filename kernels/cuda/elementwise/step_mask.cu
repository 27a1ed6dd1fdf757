// Masks of time steps: which rows differ from a value.
#include <cstdint>
#include <memory>
#include <type_traits>

#include "common/core/status.h"
#include "kernels/cuda/blocks/element.h"
#include "kernels/cuda/blocks/launch.h"
#include "kernels/cuda/blocks/rows.h"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/runtime/context.h"
#include "kernels/step_masks.h"

namespace cairn::kernels::cuda {
namespace {

template <typename Element>
__device__ bool Differs(Element x, Element masked) {
  if constexpr (std::is_integral_v<Element>) {
    return x != masked;
  } else {
    return ToFloat(x) != ToFloat(masked);
  }
}

// y [plan.rows] from x [plan.rows, width]. The threads are mapped to the rows of x. Deterministic.
template <typename Element>
__global__ void MaskSteps(RowPlan plan, int64_t width, Element masked, const Element* x, float* y) {
  for (int64_t round = 0; round < plan.rounds; ++round) {
    const int64_t row = plan.Row(round);
    const int64_t own = row < plan.rows ? width : 0;
    float differs = 0;
    plan.ForEach<1>(own, [&](int64_t j) {
      if (Differs(x[row * width + j], masked)) differs = 1;
    });
    differs = plan.Reduce(differs, Largest());
    if (own > 0 && plan.rank() == 0) y[row] = differs;
  }
}

template <typename Element>
class CudaStepMask final : public UnaryOp {
 public:
  CudaStepMask(Context& context, const StepMaskParams& params, Element masked)
      : context_(context),
        output_({.shape = {params.input.shape[0]}}),
        width_(params.input.shape[1]),
        masked_(masked) {
    constexpr int64_t kMaxBlocks = 1 << 20;
    plan_ = RowPlan::Make(output_.shape[0], width_, kMaxBlocks);
  }

  const TensorDesc& output() const override { return output_; }
  absl::Status Forward(const float* x, float* y) override {
    return CAIRN_LAUNCH((MaskSteps<Element>), plan_.grid, plan_.block, 0, context_.stream(), plan_, width_,
                        masked_, As<Element>(x), y);
  }
  absl::Status Backward(const float*, const float*, const float*, float*) override {
    return absl::OkStatus();
  }

 private:
  Context& context_;
  const TensorDesc output_;
  const int64_t width_;
  const Element masked_;
  RowPlan plan_;
};

template <typename Element>
std::unique_ptr<UnaryOp> Make(Context& context, const StepMaskParams& params, Element masked) {
  return std::make_unique<CudaStepMask<Element>>(context, params, masked);
}

}  // namespace

absl::StatusOr<std::unique_ptr<UnaryOp>> MakeStepMask(Context& context, const StepMaskParams& params) {
  CAIRN_RETURN_IF_ERROR(Validate(params));
  if (IsInteger(params.input.type)) {
    return WithIntegerType(params.input.type, [&](auto zero) {
      return Make(context, params, static_cast<decltype(zero)>(params.masked));
    });
  }
  return VisitType(params.input.type, [&](auto* p) {
    return Make(context, params, FromFloat<std::remove_pointer_t<decltype(p)>>(params.masked));
  });
}

}  // namespace cairn::kernels::cuda
