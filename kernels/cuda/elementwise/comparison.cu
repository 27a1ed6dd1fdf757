// Comparisons and logical functions of two inputs of any types.
#include <cstdint>
#include <utility>

#include "common/core/status.h"
#include "kernels/comparison.h"
#include "kernels/cuda/blocks/element.h"
#include "kernels/cuda/blocks/launch.h"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/runtime/context.h"

namespace cairn::kernels::cuda {
namespace {

struct Operand {
  const void* x = nullptr;
  ElementType type = ElementType::kFloat32;

  template <typename Element>
  __device__ Element ElementAt(int64_t i) const {
    return static_cast<const Element*>(x)[i];
  }
  template <typename Value>
  __device__ Value At(int64_t i) const {
    switch (type) {
      case ElementType::kInt32:
        return static_cast<Value>(ElementAt<int32_t>(i));
      case ElementType::kInt64:
        return static_cast<Value>(ElementAt<int64_t>(i));
      case ElementType::kUint8:
      case ElementType::kBool:
        return static_cast<Value>(ElementAt<uint8_t>(i));
      case ElementType::kBFloat16:
        return static_cast<Value>(ToFloat(ElementAt<BFloat16>(i)));
      case ElementType::kFloat16:
        return static_cast<Value>(ToFloat(ElementAt<Float16>(i)));
      case ElementType::kFloat32:
        break;
    }
    return static_cast<Value>(ElementAt<float>(i));
  }
};

// y [b.elements] = 1 where the comparison holds. One thread for each element of y, grid-strided. Deterministic.
template <typename Value>
__global__ void CompareElements(Broadcast b, Comparison kind, Operand first, Operand second, float* y) {
  for (int64_t i = CAIRN_GLOBAL_THREAD; i < b.elements; i += CAIRN_GLOBAL_THREADS) {
    int64_t index[Broadcast::kMaxAxes];
    b.Locate(i, index);
    const auto a = first.At<Value>(b.OffsetOf(0, index));
    const auto c = second.At<Value>(b.OffsetOf(1, index));
    y[i] = Compare(kind, a, c) ? 1.0f : 0.0f;
  }
}

// `Value`: the type in which both inputs are compared.
template <typename Value>
class CudaComparison final : public NaryOp {
 public:
  CudaComparison(Context& context, const ComparisonParams& params, ComparisonPlan plan)
      : context_(context),
        kind_(params.kind),
        types_{params.inputs[0].type, params.inputs[1].type},
        b_(plan.broadcast),
        output_(std::move(plan.output)) {}

  const TensorDesc& output() const override { return output_; }

  absl::Status Forward(absl::Span<const float* const> xs, float* y) override {
    return CAIRN_LAUNCH(CompareElements<Value>, GridFor(b_.elements), kBlock, 0, context_.stream(), b_, kind_,
                        (Operand{xs[0], types_[0]}), (Operand{xs[1], types_[1]}), y);
  }
  absl::Status Backward(absl::Span<const float* const>, const float*, absl::Span<float* const> dxs) override {
    for (size_t k = 0; k < dxs.size(); ++k) {
      if (dxs[k] == nullptr) continue;
      const int64_t bytes = b_.elements_of(static_cast<int>(k)) * BytesOf(types_[k]);
      CAIRN_CUDA(cudaMemsetAsync(dxs[k], 0, static_cast<size_t>(bytes), context_.stream()));
    }
    return absl::OkStatus();
  }

 private:
  Context& context_;
  const Comparison kind_;
  const ElementType types_[2];
  const Broadcast b_;
  const TensorDesc output_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<NaryOp>> MakeComparison(Context& context, const ComparisonParams& params) {
  CAIRN_ASSIGN_OR_RETURN(ComparisonPlan plan, PlanComparison(params));
  if (plan.integers) return std::make_unique<CudaComparison<int64_t>>(context, params, std::move(plan));
  return std::make_unique<CudaComparison<float>>(context, params, std::move(plan));
}

}  // namespace cairn::kernels::cuda
