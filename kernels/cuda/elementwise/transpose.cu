// Copies a tensor with its axes in another order. The type of the elements does not matter.
#include <cstdint>
#include <type_traits>
#include <utility>

#include "common/core/status.h"
#include "kernels/cuda/blocks/element.h"
#include "kernels/cuda/blocks/launch.h"
#include "kernels/cuda/blocks/pack.h"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/runtime/context.h"
#include "kernels/transpose.h"

namespace cairn::kernels::cuda {
namespace {

// One thread for each unit of y, grid-strided; a chunk has `units` of them. Adjacent threads write adjacent units.
// Deterministic.
template <typename Unit>
__global__ void CopyChunks(TransposePlan plan, int64_t units, int64_t all, const Unit* x, Unit* y) {
  for (int64_t i = CAIRN_GLOBAL_THREAD; i < all; i += CAIRN_GLOBAL_THREADS) {
    int64_t rest = i / units, from = 0;
    const int64_t unit = i - rest * units;
#pragma unroll
    for (int axis = TransposePlan::kMaxAxes - 1; axis >= 0; --axis) {
      if (axis >= plan.axes) continue;
      const int64_t extent = plan.extents[static_cast<size_t>(axis)], row = rest / extent;
      from += (rest - row * extent) * plan.strides[static_cast<size_t>(axis)];
      rest = row;
    }
    y[i] = x[from * units + unit];
  }
}

class CudaTranspose final : public UnaryOp {
 public:
  CudaTranspose(Context& context, TensorDesc output, const TransposePlans& plans)
      : context_(context), output_(std::move(output)), forward_(plans.forward), backward_(plans.backward) {}

  const TensorDesc& output() const override { return output_; }
  absl::Status Forward(const float* x, float* y) override { return Copy(forward_, x, y); }
  absl::Status Backward(const float* /*x*/, const float* /*y*/, const float* dy, float* dx) override {
    return Copy(backward_, dy, dx);
  }

 private:
  absl::Status Copy(const TransposePlan& plan, const float* from, float* to) const {
    const int64_t bytes = plan.chunk * BytesOf(output_.type);
    // Variables lie side by side, without alignment.
    const auto addresses = reinterpret_cast<uintptr_t>(from) | reinterpret_cast<uintptr_t>(to);
    return VisitMovedUnit(bytes | static_cast<int64_t>(addresses), [&](auto* unit) -> absl::Status {
      using Unit = std::remove_pointer_t<decltype(unit)>;
      const int64_t units = bytes / int64_t{sizeof(Unit)}, all = plan.chunks() * units;
      return CAIRN_LAUNCH(CopyChunks<Unit>, GridFor(all), kBlock, 0, context_.stream(), plan, units, all,
                          As<Unit>(from), As<Unit>(to));
    });
  }

  Context& context_;
  const TensorDesc output_;
  const TransposePlan forward_, backward_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<UnaryOp>> MakeTranspose(Context& context, const TransposeParams& params) {
  CAIRN_ASSIGN_OR_RETURN(const TransposePlans plans, PlanTranspose(params));
  return std::make_unique<CudaTranspose>(context, params.input.WithShape(plans.output), plans);
}

}  // namespace cairn::kernels::cuda
