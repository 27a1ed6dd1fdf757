// Batch normalization: one launch if a block holds all rows of its channels, otherwise one launch that sums
// and one that normalizes.
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

namespace cairn::kernels::cuda {
namespace {

constexpr int kChunk = 8;  // rows that a thread loads at once

// Values per channel, each [channels] at any address; gamma and beta may be null.
struct Channels {
  const float* gamma = nullptr;
  const float* beta = nullptr;
  const float* mean = nullptr;
  const float* variance = nullptr;
  float epsilon = 0;
};

__device__ float InverseDeviation(const Channels& channels, int64_t channel) {
  return 1.0f / std::sqrt(channels.variance[channel] + channels.epsilon);
}

// Normalizes this thread's rows and channels, and writes y.
template <typename T, int kUnit>
__device__ void NormalizeRows(const ColumnPlan& plan, const Channels& channels, const T* x, T* y) {
  if (plan.unit() >= plan.units) return;
  const int64_t channel = plan.unit() * kUnit;
  float mean[kUnit], scale[kUnit], shift[kUnit];
#pragma unroll
  for (int k = 0; k < kUnit; ++k) {
    mean[k] = channels.mean[channel + k];
    scale[k] = InverseDeviation(channels, channel + k) *
               (channels.gamma == nullptr ? 1.0f : channels.gamma[channel + k]);
    shift[k] = channels.beta == nullptr ? 0.0f : channels.beta[channel + k];
  }
  const int64_t step = plan.thread_rows() * plan.columns;
  ForChunks<kChunk>(plan, [&](auto n, int64_t row) {
    constexpr int kRows = decltype(n)::value;
    const int64_t at = row * plan.columns + channel;
    Pack<T, kUnit> v[kRows];
#pragma unroll
    for (int r = 0; r < kRows; ++r) v[r] = Load<kUnit>(x + at + r * step);
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
#pragma unroll
      for (int k = 0; k < kUnit; ++k) {
        v[r].at[k] = FromFloat<T>((ToFloat(v[r].at[k]) - mean[k]) * scale[k] + shift[k]);
      }
      Store(y + at + r * step, v[r]);
    }
  });
}

template <typename T, int kUnit>
__global__ void Normalize(ColumnPlan plan, Channels channels, const T* x, T* y) {
  NormalizeRows<T, kUnit>(plan, channels, x, y);
}

// Writes mean and variance [channels] to channels.mean and channels.variance, and y if there is one slab. The
// moments are those of x minus the channel's first value, which keeps precision where the mean is far from 0.
// A chunk's moments are computed in two passes over registers, then chunks and threads are merged.
// Deterministic.
template <typename T, int kUnit>
__global__ void TakeStatistics(ColumnPlan plan, Channels channels, const T* x, Pair* partials,
                               unsigned* counters, float* mean, float* variance, T* y) {
  const bool inside = plan.unit() < plan.units;
  const int64_t channel = plan.unit() * kUnit;
  float origin[kUnit];
  Pair moments[kUnit];
#pragma unroll
  for (int k = 0; k < kUnit; ++k) {
    origin[k] = inside ? ToFloat(x[channel + k]) : 0.0f;
    moments[k] = {0, 0};
  }
  float count = 0;
  const int64_t step = plan.thread_rows() * plan.columns;
  ForChunks<kChunk>(plan, [&](auto n, int64_t row) {
    constexpr int kRows = decltype(n)::value;
    Pack<T, kUnit> v[kRows];
#pragma unroll
    for (int r = 0; r < kRows; ++r) v[r] = Load<kUnit>(x + row * plan.columns + channel + r * step);
    Pair chunk[kUnit];
#pragma unroll
    for (int k = 0; k < kUnit; ++k) {
      float sum = 0, squares = 0;
#pragma unroll
      for (int r = 0; r < kRows; ++r) sum += ToFloat(v[r].at[k]) - origin[k];
      sum /= kRows;
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        const float deviation = ToFloat(v[r].at[k]) - origin[k] - sum;
        squares += deviation * deviation;
      }
      chunk[k] = {sum, squares};
    }
    MergePairs<MergeMoments>(count, moments, kRows, chunk);
  });
  if (!MergeColumns<MergeMoments>(plan, count, moments, partials, counters)) return;
  if (inside && plan.thread_row() == 0) {
#pragma unroll
    for (int k = 0; k < kUnit; ++k) {
      mean[channel + k] = origin[k] + moments[k].a;
      variance[channel + k] = moments[k].b / count;
    }
  }
  if (plan.slabs > 1) return;
  __syncthreads();
  NormalizeRows<T, kUnit>(plan, channels, x, y);
}

// Computes dx. `means` [channels] has the means of dy and of dy times normalized x, in `a` and `b`; it is
// null if mean and variance do not depend on x. With n = (x - mean) / deviation: dx = gamma / deviation (dy -
// mean(dy) - n mean(dy n)).
template <typename T, int kUnit>
__device__ void DifferentiateRows(const ColumnPlan& plan, const Channels& channels, const Pair* means,
                                  const T* x, const T* dy, T* dx) {
  if (plan.unit() >= plan.units) return;
  const int64_t channel = plan.unit() * kUnit;
  float mean[kUnit], scale[kUnit], shift[kUnit], slope[kUnit];
#pragma unroll
  for (int k = 0; k < kUnit; ++k) {
    const float inverse = InverseDeviation(channels, channel + k);
    mean[k] = channels.mean[channel + k];
    scale[k] = inverse * (channels.gamma == nullptr ? 1.0f : channels.gamma[channel + k]);
    shift[k] = means == nullptr ? 0.0f : means[channel + k].a;
    slope[k] = means == nullptr ? 0.0f : means[channel + k].b * inverse;
  }
  const int64_t step = plan.thread_rows() * plan.columns;
  ForChunks<kChunk / 2>(plan, [&](auto n, int64_t row) {
    constexpr int kRows = decltype(n)::value;
    const int64_t at = row * plan.columns + channel;
    Pack<T, kUnit> v[kRows], d[kRows];
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      v[r] = Load<kUnit>(x + at + r * step);
      d[r] = Load<kUnit>(dy + at + r * step);
    }
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
#pragma unroll
      for (int k = 0; k < kUnit; ++k) {
        const float centered = ToFloat(v[r].at[k]) - mean[k];
        d[r].at[k] = FromFloat<T>(scale[k] * (ToFloat(d[r].at[k]) - shift[k] - centered * slope[k]));
      }
      Store(dx + at + r * step, d[r]);
    }
  });
}

template <typename T, int kUnit>
__global__ void Differentiate(ColumnPlan plan, Channels channels, const Pair* means, const T* x, const T* dy,
                              T* dx) {
  DifferentiateRows<T, kUnit>(plan, channels, means, x, dy, dx);
}

// The destinations of the sums of gradients: dgamma and dbeta [channels] at any address, or null; `means` for
// DifferentiateRows().
struct Gradients {
  Pair* means = nullptr;
  float* dgamma = nullptr;
  float* dbeta = nullptr;
  bool frozen = false;
};

// Computes the sums of dy and of dy times normalized x over the rows. If there is one slab, also computes dx,
// unless it is null. Deterministic.
template <typename T, int kUnit>
__global__ void SumGradients(ColumnPlan plan, Channels channels, Gradients gradients, const T* x, const T* dy,
                             Pair* partials, unsigned* counters, T* dx) {
  const bool inside = plan.unit() < plan.units;
  const int64_t channel = plan.unit() * kUnit;
  float mean[kUnit];
  Pair sums[kUnit];
#pragma unroll
  for (int k = 0; k < kUnit; ++k) {
    mean[k] = inside ? channels.mean[channel + k] : 0.0f;
    sums[k] = {0, 0};
  }
  const int64_t step = plan.thread_rows() * plan.columns;
  ForChunks<kChunk / 2>(plan, [&](auto n, int64_t row) {
    constexpr int kRows = decltype(n)::value;
    const int64_t at = row * plan.columns + channel;
    Pack<T, kUnit> v[kRows], d[kRows];
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      v[r] = Load<kUnit>(x + at + r * step);
      d[r] = Load<kUnit>(dy + at + r * step);
    }
#pragma unroll
    for (int k = 0; k < kUnit; ++k) {
      Pair chunk = {0, 0};
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        chunk.a += ToFloat(d[r].at[k]);
        chunk.b += ToFloat(d[r].at[k]) * (ToFloat(v[r].at[k]) - mean[k]);
      }
      sums[k].a += chunk.a;
      sums[k].b += chunk.b;
    }
  });
  float count = 1;
  if (!MergeColumns<MergeSums>(plan, count, sums, partials, counters)) return;
  if (inside && plan.thread_row() == 0) {
    const float each = 1.0f / static_cast<float>(plan.rows);
#pragma unroll
    for (int k = 0; k < kUnit; ++k) {
      sums[k].b *= InverseDeviation(channels, channel + k);
      if (gradients.dgamma != nullptr) gradients.dgamma[channel + k] = sums[k].b;
      if (gradients.dbeta != nullptr) gradients.dbeta[channel + k] = sums[k].a;
      gradients.means[channel + k] = {sums[k].a * each, sums[k].b * each};
    }
  }
  if (plan.slabs > 1 || dx == nullptr) return;
  __syncthreads();
  DifferentiateRows<T, kUnit>(plan, channels, gradients.frozen ? nullptr : gradients.means, x, dy, dx);
}

template <typename T, int kUnit>
class CudaBatchNorm final : public BatchNorm {
 public:
  static absl::StatusOr<std::unique_ptr<BatchNorm>> Create(Context& context, const BatchNormParams& params) {
    const Shape& shape = params.input.shape;
    const int64_t channels = shape[shape.rank() - 1], rows = shape.num_elements() / channels;
    const int64_t multiprocessors = context.multiprocessors();
    std::unique_ptr<CudaBatchNorm> op(new CudaBatchNorm(context, params));
    // If each thread of a single block has at most kRowsOfOneBlock rows, one block sums all rows of its
    // channels. Otherwise, several blocks may share the rows, with at least kMinRows rows per thread, so that
    // the work outweighs the merging.
    constexpr int64_t kRowsOfOneBlock = 4 * kChunk, kMinRows = 2 * kChunk;
    op->sum_ = ColumnPlan::Make(rows, channels, kUnit, 2 * multiprocessors, kRowsOfOneBlock);
    if (op->sum_.slabs > 1) {
      op->sum_ = ColumnPlan::Make(rows, channels, kUnit, 2 * multiprocessors, kMinRows);
      CAIRN_RETURN_IF_ERROR(context.ReserveScratch(op->sum_.partial_bytes()));
    }
    op->map_ = ColumnPlan::Make(rows, channels, kUnit, 8 * multiprocessors, kChunk / 2);
    CAIRN_ASSIGN_OR_RETURN(op->counters_, context.Allocate(op->sum_.tiles, "batch normalization: counters"));
    CAIRN_ASSIGN_OR_RETURN(op->means_, context.Allocate(2 * channels, "batch normalization: means"));
    return op;
  }

  const TensorDesc& output() const override { return params_.input; }

  absl::Status Forward(const float* x, const float* gamma, const float* beta, float* mean, float* variance,
                       float* y) override {
    const Channels channels = At(gamma, beta, mean, variance);
    CAIRN_RETURN_IF_ERROR(CAIRN_LAUNCH((TakeStatistics<T, kUnit>), sum_.grid(), kBlock, 0, context_.stream(),
                                       sum_, channels, As<T>(x), partials(), counters(), mean, variance,
                                       As<T>(y)));
    return sum_.slabs == 1 ? absl::OkStatus() : Map(channels, x, y);
  }
  absl::Status Infer(const float* x, const float* gamma, const float* beta, const float* mean,
                     const float* variance, float* y) override {
    return Map(At(gamma, beta, mean, variance), x, y);
  }
  absl::Status Backward(const float* x, const float* gamma, const float* mean, const float* variance,
                        const float* dy, float* dx, float* dgamma, float* dbeta) override {
    const Channels channels = At(gamma, nullptr, mean, variance);
    const Gradients gradients = {.means = reinterpret_cast<Pair*>(means_->data()),
                                 .dgamma = params_.scale ? dgamma : nullptr,
                                 .dbeta = params_.center ? dbeta : nullptr,
                                 .frozen = params_.frozen};
    bool dx_done = dx == nullptr;
    if (!params_.frozen || gradients.dgamma != nullptr || gradients.dbeta != nullptr) {
      CAIRN_RETURN_IF_ERROR(CAIRN_LAUNCH((SumGradients<T, kUnit>), sum_.grid(), kBlock, 0, context_.stream(),
                                         sum_, channels, gradients, As<T>(x), As<T>(dy), partials(),
                                         counters(), As<T>(dx)));
      dx_done = dx_done || sum_.slabs == 1;
    }
    if (dx_done) return absl::OkStatus();
    return CAIRN_LAUNCH((Differentiate<T, kUnit>), map_.grid(), kBlock, 0, context_.stream(), map_, channels,
                        params_.frozen ? nullptr : gradients.means, As<T>(x), As<T>(dy), As<T>(dx));
  }

 private:
  CudaBatchNorm(Context& context, const BatchNormParams& params) : context_(context), params_(params) {}

  Channels At(const float* gamma, const float* beta, const float* mean, const float* variance) const {
    return {.gamma = params_.scale ? gamma : nullptr,
            .beta = params_.center ? beta : nullptr,
            .mean = mean,
            .variance = variance,
            .epsilon = params_.epsilon};
  }
  absl::Status Map(const Channels& channels, const float* x, float* y) const {
    return CAIRN_LAUNCH((Normalize<T, kUnit>), map_.grid(), kBlock, 0, context_.stream(), map_, channels,
                        As<T>(x), As<T>(y));
  }
  Pair* partials() const { return static_cast<Pair*>(context_.scratch()); }
  unsigned* counters() const { return reinterpret_cast<unsigned*>(counters_->data()); }

  Context& context_;
  const BatchNormParams params_;
  ColumnPlan sum_, map_;
  std::unique_ptr<DeviceMemory> counters_;  // [tiles]
  std::unique_ptr<DeviceMemory> means_;     // [channels] of Pair
};

}  // namespace

absl::StatusOr<std::unique_ptr<BatchNorm>> MakeBatchNorm(Context& context, const BatchNormParams& params) {
  const Shape& shape = params.input.shape;
  if (shape.rank() < 2 || shape.num_elements() < 1 || params.input.layout != Layout::kRowMajor) {
    return absl::InvalidArgumentError(absl::StrCat("batch normalization of ", params.input.ToString(),
                                                   ": expected [batch, ..., channels]"));
  }
  return VisitType(params.input.type, [&](auto* p) {
    using T = std::remove_pointer_t<decltype(p)>;
    return VisitUnit<T>(shape[shape.rank() - 1], [&](auto unit) {
      return CudaBatchNorm<T, decltype(unit)::value>::Create(context, params);
    });
  });
}

}  // namespace cairn::kernels::cuda
