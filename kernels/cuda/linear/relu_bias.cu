#include <type_traits>
#include <utility>

#include "common/core/status.h"
#include "kernels/cuda/blocks/columns.h"
#include "kernels/cuda/blocks/element.h"
#include "kernels/cuda/blocks/launch.h"
#include "kernels/cuda/blocks/rows.h"
#include "kernels/cuda/linear/relu_bias.h"
#include "kernels/formulas.h"

namespace cairn::kernels::cuda {
namespace {

// The kernel of ReluBias::Backward(): y and dy are [rows, channels]; dbias is [channels] at any address, or
// null. Deterministic.
template <typename T, int kUnit>
__global__ void MaskAndSum(ColumnPlan plan, bool relu, const T* y, T* dy, Pair* partials, unsigned* counters,
                           float* dbias) {
  constexpr int kChunk = 4;
  const int64_t channel = plan.unit() * kUnit, step = plan.thread_rows() * plan.columns;
  Pair sums[kUnit];
#pragma unroll
  for (int k = 0; k < kUnit; ++k) sums[k] = {0, 0};
  ForChunks<kChunk>(plan, [&](auto n, int64_t row) {
    constexpr int kRows = decltype(n)::value;
    const int64_t at = row * plan.columns + channel;
    Pack<T, kUnit> d[kRows];
#pragma unroll
    for (int r = 0; r < kRows; ++r) d[r] = Load<kUnit>(dy + at + r * step);
    if (relu) {
      Pack<T, kUnit> v[kRows];
#pragma unroll
      for (int r = 0; r < kRows; ++r) v[r] = Load<kUnit>(y + at + r * step);
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
#pragma unroll
        for (int k = 0; k < kUnit; ++k) {
          if (!(ToFloat(v[r].at[k]) > 0)) d[r].at[k] = FromFloat<T>(0.0f);
        }
        Store(dy + at + r * step, d[r]);
      }
    }
#pragma unroll
    for (int k = 0; k < kUnit; ++k) {
#pragma unroll
      for (int r = 0; r < kRows; ++r) sums[k].a += ToFloat(d[r].at[k]);
    }
  });
  if (dbias == nullptr) return;
  float count = 1;
  if (!MergeColumns<MergeSums>(plan, count, sums, partials, counters)) return;
  if (plan.unit() >= plan.units || plan.thread_row() > 0) return;
#pragma unroll
  for (int k = 0; k < kUnit; ++k) dbias[channel + k] = sums[k].a;
}

// Adds the bias and applies the relu. One thread for each element. Deterministic.
template <typename T>
__global__ void AddAndCut(int64_t elements, int64_t channels, const float* bias, bool relu, T* y) {
  for (int64_t i = CAIRN_GLOBAL_THREAD; i < elements; i += CAIRN_GLOBAL_THREADS) {
    const float sum = ToFloat(y[i]) + (bias == nullptr ? 0.0f : bias[i % channels]);
    y[i] = FromFloat<T>(relu ? Relu(sum) : sum);
  }
}

template <typename T, int kUnit>
class CudaReluBias final : public ReluBias {
 public:
  static absl::StatusOr<std::unique_ptr<ReluBias>> Create(Context& context, int64_t rows, int64_t channels,
                                                          bool relu) {
    constexpr int64_t kMinRows = 16;
    const ColumnPlan plan = ColumnPlan::Make(rows, channels, kUnit, 2 * context.multiprocessors(), kMinRows);
    CAIRN_RETURN_IF_ERROR(context.ReserveScratch(plan.partial_bytes()));
    CAIRN_ASSIGN_OR_RETURN(auto counters, context.Allocate(plan.tiles, "bias: counters"));
    return std::unique_ptr<ReluBias>(new CudaReluBias(context, plan, relu, std::move(counters)));
  }

  absl::Status Backward(const void* y, void* dy, float* dbias) override {
    if (!relu_ && dbias == nullptr) return absl::OkStatus();
    return CAIRN_LAUNCH((MaskAndSum<T, kUnit>), plan_.grid(), kBlock, 0, context_.stream(), plan_, relu_,
                        static_cast<const T*>(y), static_cast<T*>(dy), static_cast<Pair*>(context_.scratch()),
                        reinterpret_cast<unsigned*>(counters_->data()), dbias);
  }

 private:
  CudaReluBias(Context& context, const ColumnPlan& plan, bool relu, std::unique_ptr<DeviceMemory> counters)
      : context_(context), plan_(plan), relu_(relu), counters_(std::move(counters)) {}

  Context& context_;
  const ColumnPlan plan_;
  const bool relu_;
  const std::unique_ptr<DeviceMemory> counters_;  // [tiles]
};

}  // namespace

absl::Status Apply(Context& context, const BiasRelu& what, void* y) {
  if (what.bias == nullptr && !what.relu) return absl::OkStatus();
  const int64_t elements = what.rows * what.channels;
  return VisitType(what.type, [&](auto* p) {
    using T = std::remove_pointer_t<decltype(p)>;
    return CAIRN_LAUNCH(AddAndCut<T>, GridFor(elements), kBlock, 0, context.stream(), elements, what.channels,
                        what.bias, what.relu, static_cast<T*>(y));
  });
}

absl::StatusOr<std::unique_ptr<ReluBias>> ReluBias::Create(Context& context, ElementType type, int64_t rows,
                                                           int64_t channels, bool relu) {
  return VisitType(type, [&](auto* p) {
    using T = std::remove_pointer_t<decltype(p)>;
    return VisitUnit<T>(channels, [&](auto unit) {
      return CudaReluBias<T, decltype(unit)::value>::Create(context, rows, channels, relu);
    });
  });
}

}  // namespace cairn::kernels::cuda
