// Layer normalization by rows; the gradients of gamma and beta by columns.
#include <cmath>
#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/core/status.h"
#include "kernels/cuda/blocks/columns.h"
#include "kernels/cuda/blocks/element.h"
#include "kernels/cuda/blocks/launch.h"
#include "kernels/cuda/blocks/rows.h"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/runtime/context.h"
#include "kernels/formulas.h"

namespace cairn::kernels::cuda {
namespace {

// The statistics that normalize a row.
struct RowStatistics {
  float mean, inverse_deviation;
};

__device__ float At(const float* values, int64_t j, float otherwise) {
  return values == nullptr ? otherwise : values[j];
}

// Normalizes the rows of x into y, both [rows, width]. gamma and beta are [width] at any address, or null;
// `statistics` is [rows]. The mean is computed in two steps; the second step averages the deviations from the
// result of the first one, which keeps precision where the mean is far from 0. With `rms` the mean is 0.
// Deterministic.
template <typename T, int kUnit>
__global__ void NormalizeRows(RowPlan plan, int64_t width, float epsilon, bool rms, const T* x,
                              const float* gamma, const float* beta, RowStatistics* statistics, T* y) {
  const float each = 1.0f / static_cast<float>(width);
  for (int64_t round = 0; round < plan.rounds; ++round) {
    const int64_t row = plan.Row(round);
    const int64_t own = row < plan.rows ? width : 0;
    const T* const from = x + row * width;
    float sum = 0;
    plan.ForEach<kUnit>(own, [&](int64_t j) {
      const auto v = Load<kUnit>(from + j);
#pragma unroll
      for (int k = 0; k < kUnit; ++k) sum += ToFloat(v.at[k]);
    });
    const float near = rms ? 0.0f : plan.Reduce(sum, Sum()) * each;
    float rest = 0, squares = 0;
    plan.ForEach<kUnit>(own, [&](int64_t j) {
      const auto v = Load<kUnit>(from + j);
#pragma unroll
      for (int k = 0; k < kUnit; ++k) {
        const float deviation = ToFloat(v.at[k]) - near;
        rest += deviation;
        squares += deviation * deviation;
      }
    });
    rest = rms ? 0.0f : plan.Reduce(rest, Sum()) * each;
    const float variance = Relu(plan.Reduce(squares, Sum()) * each - rest * rest);  // a NaN is kept
    const float mean = near + rest, inverse = 1.0f / std::sqrt(variance + epsilon);
    if (own > 0 && plan.rank() == 0) statistics[row] = {mean, inverse};
    plan.ForEach<kUnit>(own, [&](int64_t j) {
      auto v = Load<kUnit>(from + j);
#pragma unroll
      for (int k = 0; k < kUnit; ++k) {
        const float normalized = (ToFloat(v.at[k]) - mean) * inverse;
        v.at[k] = FromFloat<T>(normalized * At(gamma, j + k, 1) + At(beta, j + k, 0));
      }
      Store(y + row * width + j, v);
    });
  }
}

// Computes dx from x and dy, all [rows, width]; gamma is [width] or null. With n = (x - mean) / deviation and
// g = gamma dy: dx = (g - mean(g) - n mean(g n)) / deviation, with `rms` without mean(g). Deterministic.
template <typename T, int kUnit>
__global__ void DifferentiateRows(RowPlan plan, int64_t width, bool rms, const T* x, const float* gamma,
                                  const RowStatistics* statistics, const T* dy, T* dx) {
  const float each = 1.0f / static_cast<float>(width);
  for (int64_t round = 0; round < plan.rounds; ++round) {
    const int64_t row = plan.Row(round), begin = row * width;
    const int64_t own = row < plan.rows ? width : 0;
    const RowStatistics s = own > 0 ? statistics[row] : RowStatistics{0, 0};
    float sum = 0, product = 0;
    plan.ForEach<kUnit>(own, [&](int64_t j) {
      const auto v = Load<kUnit>(x + begin + j), d = Load<kUnit>(dy + begin + j);
#pragma unroll
      for (int k = 0; k < kUnit; ++k) {
        const float g = ToFloat(d.at[k]) * At(gamma, j + k, 1);
        sum += g;
        product += g * (ToFloat(v.at[k]) - s.mean) * s.inverse_deviation;
      }
    });
    const float mean_g = rms ? 0.0f : plan.Reduce(sum, Sum()) * each;
    const float mean_gn = plan.Reduce(product, Sum()) * each;
    plan.ForEach<kUnit>(own, [&](int64_t j) {
      const auto v = Load<kUnit>(x + begin + j);
      auto d = Load<kUnit>(dy + begin + j);
#pragma unroll
      for (int k = 0; k < kUnit; ++k) {
        const float g = ToFloat(d.at[k]) * At(gamma, j + k, 1);
        const float normalized = (ToFloat(v.at[k]) - s.mean) * s.inverse_deviation;
        d.at[k] = FromFloat<T>((g - mean_g - normalized * mean_gn) * s.inverse_deviation);
      }
      Store(dx + begin + j, d);
    });
  }
}

// dgamma is the sum over the rows of dy times normalized x, and dbeta is the sum of dy. Both are [width] at
// any address, or null. Deterministic.
template <typename T, int kUnit>
__global__ void SumColumns(ColumnPlan plan, const T* x, const RowStatistics* statistics, const T* dy,
                           Pair* partials, unsigned* counters, float* dgamma, float* dbeta) {
  constexpr int kRowsAhead = 4;
  const int64_t column = plan.unit() * kUnit, step = plan.thread_rows();
  Pair sums[kUnit];
#pragma unroll
  for (int k = 0; k < kUnit; ++k) sums[k] = {0, 0};
  ForChunks<kRowsAhead>(plan, [&](auto n, int64_t row) {
    constexpr int kRows = decltype(n)::value;
    Pack<T, kUnit> v[kRows], d[kRows];
    RowStatistics s[kRows];
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const int64_t at = (row + r * step) * plan.columns + column;
      v[r] = Load<kUnit>(x + at);
      d[r] = Load<kUnit>(dy + at);
      s[r] = statistics[row + r * step];
    }
#pragma unroll
    for (int k = 0; k < kUnit; ++k) {
      Pair chunk = {0, 0};
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        const float normalized = (ToFloat(v[r].at[k]) - s[r].mean) * s[r].inverse_deviation;
        chunk.a += ToFloat(d[r].at[k]) * normalized;
        chunk.b += ToFloat(d[r].at[k]);
      }
      sums[k].a += chunk.a;
      sums[k].b += chunk.b;
    }
  });
  float count = 1;
  if (!MergeColumns<MergeSums>(plan, count, sums, partials, counters)) return;
  if (plan.unit() >= plan.units || plan.thread_row() > 0) return;
#pragma unroll
  for (int k = 0; k < kUnit; ++k) {
    if (dgamma != nullptr) dgamma[column + k] = sums[k].a;
    if (dbeta != nullptr) dbeta[column + k] = sums[k].b;
  }
}

template <typename T, int kUnit>
class CudaLayerNorm final : public LayerNorm {
 public:
  static absl::StatusOr<std::unique_ptr<LayerNorm>> Create(Context& context, const LayerNormParams& params) {
    std::unique_ptr<CudaLayerNorm> op(new CudaLayerNorm(context, params));
    constexpr int64_t kMaxBlocks = 1 << 20, kMinRows = 16;
    op->by_rows_ = RowPlan::Make(params.rows, params.width / kUnit, kMaxBlocks);
    op->by_columns_ =
        ColumnPlan::Make(params.rows, params.width, kUnit, 2 * context.multiprocessors(), kMinRows);
    CAIRN_RETURN_IF_ERROR(context.ReserveScratch(op->by_columns_.partial_bytes()));
    CAIRN_ASSIGN_OR_RETURN(op->statistics_,
                           context.Allocate(2 * params.rows, "layer normalization: statistics"));
    CAIRN_ASSIGN_OR_RETURN(op->counters_,
                           context.Allocate(op->by_columns_.tiles, "layer normalization: counters"));
    return op;
  }

  absl::Status Forward(const float* x, const float* gamma, const float* beta, float* y) override {
    return CAIRN_LAUNCH((NormalizeRows<T, kUnit>), by_rows_.grid, by_rows_.block, 0, context_.stream(),
                        by_rows_, params_.width, params_.epsilon, params_.rms, As<T>(x), gamma, beta,
                        statistics(), As<T>(y));
  }
  absl::Status Backward(const float* x, const float* gamma, const float* dy, float* dx, float* dgamma,
                        float* dbeta) override {
    if (dx != nullptr) {
      CAIRN_RETURN_IF_ERROR(CAIRN_LAUNCH((DifferentiateRows<T, kUnit>), by_rows_.grid, by_rows_.block, 0,
                                         context_.stream(), by_rows_, params_.width, params_.rms, As<T>(x),
                                         gamma, statistics(), As<T>(dy), As<T>(dx)));
    }
    if (dgamma == nullptr && dbeta == nullptr) return absl::OkStatus();
    return CAIRN_LAUNCH((SumColumns<T, kUnit>), by_columns_.grid(), kBlock, 0, context_.stream(), by_columns_,
                        As<T>(x), statistics(), As<T>(dy), static_cast<Pair*>(context_.scratch()),
                        reinterpret_cast<unsigned*>(counters_->data()), dgamma, dbeta);
  }

 private:
  CudaLayerNorm(Context& context, const LayerNormParams& params) : context_(context), params_(params) {}
  RowStatistics* statistics() const { return reinterpret_cast<RowStatistics*>(statistics_->data()); }

  Context& context_;
  const LayerNormParams params_;
  RowPlan by_rows_;
  ColumnPlan by_columns_;
  std::unique_ptr<DeviceMemory> statistics_;  // [row] from the last Forward()
  std::unique_ptr<DeviceMemory> counters_;    // [tiles]
};

}  // namespace

absl::StatusOr<std::unique_ptr<LayerNorm>> MakeLayerNorm(Context& context, const LayerNormParams& params) {
  if (params.rows < 1 || params.width < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("cannot apply layer normalization over [", params.rows, ",", params.width, "]"));
  }
  return VisitType(params.type, [&](auto* p) {
    using T = std::remove_pointer_t<decltype(p)>;
    return VisitUnit<T>(params.width, [&](auto unit) {
      return CudaLayerNorm<T, decltype(unit)::value>::Create(context, params);
    });
  });
}

}  // namespace cairn::kernels::cuda
