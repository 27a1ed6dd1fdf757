// Comparisons and logical functions of two inputs of any types.
#include "kernels/comparison.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>

#include "common/core/status.h"
#include "kernels/cpu/elementwise/broadcast_runs.h"
#include "kernels/cpu/ops.h"
#include "kernels/cpu/parallel.h"

namespace cairn::kernels::cpu {
namespace {

// `Value`: the type in which both inputs are compared.
template <typename Value>
class CpuComparison final : public NaryOp {
 public:
  CpuComparison(onednn::Context& context, const ComparisonParams& params, ComparisonPlan plan)
      : context_(context),
        kind_(params.kind),
        types_({params.inputs[0].type, params.inputs[1].type}),
        b_(plan.broadcast),
        output_(std::move(plan.output)) {}

  const TensorDesc& output() const override { return output_; }

  absl::Status Forward(absl::Span<const float* const> xs, float* y) override {
    ParallelFor(context_, b_.elements, kElementGrain, [&](int64_t begin, int64_t end) {
      ForEachRun(b_, begin, end, [&](const Run& run) { CompareRun(run, xs, y + run.output); });
    });
    return absl::OkStatus();
  }
  absl::Status Backward(absl::Span<const float* const>, const float*, absl::Span<float* const> dxs) override {
    for (size_t k = 0; k < dxs.size(); ++k) {
      if (dxs[k] != nullptr) std::fill_n(dxs[k], b_.elements_of(static_cast<int>(k)), 0.0f);
    }
    return absl::OkStatus();
  }

 private:
  static constexpr int64_t kAtOnce = 256;
  using Values = std::array<Value, kAtOnce>;

  void CompareRun(const Run& run, absl::Span<const float* const> xs, float* y) const {
    Values a, b;
    for (int64_t at = 0; at < run.count; at += kAtOnce) {
      const int64_t count = std::min(kAtOnce, run.count - at);
      Load(0, run, at, count, xs[0], a);
      Load(1, run, at, count, xs[1], b);
      for (size_t i = 0; i < static_cast<size_t>(count); ++i)
        y[at + static_cast<int64_t>(i)] = Compare(kind_, a[i], b[i]) ? 1.0f : 0.0f;
    }
  }

  // Converts the run's elements from `at` on.
  void Load(size_t input, const Run& run, int64_t at, int64_t count, const float* x, Values& values) const {
    const int64_t stride = b_.strides[input][b_.axes - 1], first = run.offsets[input] + at * stride;
    const auto load = [&](auto zero) {
      const auto* const from = reinterpret_cast<const decltype(zero)*>(x) + first;
      for (int64_t i = 0; i < count; ++i)
        values[static_cast<size_t>(i)] = static_cast<Value>(from[i * stride]);
    };
    IsInteger(types_[input]) ? WithIntegerType(types_[input], load) : load(0.0f);
  }

  onednn::Context& context_;
  const Comparison kind_;
  const std::array<ElementType, 2> types_;  // [input]
  const Broadcast b_;
  const TensorDesc output_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<NaryOp>> MakeComparison(onednn::Context& context,
                                                       const ComparisonParams& params) {
  CAIRN_ASSIGN_OR_RETURN(ComparisonPlan plan, PlanComparison(params));
  if (plan.integers) return std::make_unique<CpuComparison<int64_t>>(context, params, std::move(plan));
  return std::make_unique<CpuComparison<float>>(context, params, std::move(plan));
}

}  // namespace cairn::kernels::cpu
