// Rows of a table by index. The gradient is dense: rows without an index are 0.
//
// Backward first links the positions of each row of the table into a list, in arbitrary order. Then one warp
// per row sorts the list of the row, which is usually short, and adds the gradients in the order of the
// positions. So the sums are deterministic, and not all indices need to be sorted together. A row with more
// than 32 positions is processed by the whole block: each warp scans a part of all indices, which costs one
// pass over the indices for each such row.
#include <algorithm>
#include <cmath>
#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/core/status.h"
#include "kernels/cuda/blocks/element.h"
#include "kernels/cuda/blocks/launch.h"
#include "kernels/cuda/blocks/rows.h"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/runtime/context.h"
#include "kernels/cuda/runtime/fault.h"
#include "kernels/cuda/runtime/status.h"

namespace cairn::kernels::cuda {
namespace {

// The row of the table for an index, or -1.
__device__ int64_t RowOf(float index, int64_t table_rows) {
  return index >= 0 && index < static_cast<float>(table_rows) ? static_cast<int64_t>(index) : -1;
}
template <typename Integer>
__device__ int64_t RowOf(Integer index, int64_t table_rows) {
  const int64_t row = index;
  return row >= 0 && row < table_rows ? row : -1;
}

// Copies rows of the table to y. x [plan.rows] contains the indices of the rows; table [table_rows, width]
// may be at any address if kUnit is 1; y is [plan.rows, width]. The threads are mapped to the rows of y. An
// index outside the table is reported to `fault`, and its row of y is 0. Deterministic.
template <typename T, typename Index, int kUnit>
__global__ void TakeRows(RowPlan plan, int64_t table_rows, int64_t width, const Index* x, const float* table,
                         T* y, FaultWord* fault) {
  for (int64_t round = 0; round < plan.rounds; ++round) {
    const int64_t place = plan.Row(round);
    if (place >= plan.rows) return;
    const int64_t row = RowOf(x[place], table_rows);
    if (row < 0 && plan.rank() == 0) NoteFault(fault, place);
    plan.ForEach<kUnit>(width, [&](int64_t j) {
      Pack<float, kUnit> v = {};
      if (row >= 0) v = Load<kUnit>(table + row * width + j);
      Pack<T, kUnit> to;
#pragma unroll
      for (int k = 0; k < kUnit; ++k) to.at[k] = FromFloat<T>(v.at[k]);
      Store(y + place * width + j, to);
    });
  }
}

// Links the positions of each table row into a list. heads [table_rows], which must be 0 before the call, and
// next [indices] contain positions + 1; 0 ends a list. One thread for each index. The order of the lists is
// not deterministic.
template <typename Index>
__global__ void LinkPlaces(int64_t indices, int64_t table_rows, const Index* x, uint32_t* heads,
                           uint32_t* next) {
  for (int64_t i = CAIRN_GLOBAL_THREAD; i < indices; i += CAIRN_GLOBAL_THREADS) {
    const int64_t row = RowOf(x[i], table_rows);
    if (row >= 0) next[i] = atomicExch(&heads[row], static_cast<uint32_t>(i) + 1);
  }
}

constexpr int kWarps = 16;   // warps of a block of AddRows()
constexpr int kColumns = 4;  // columns of a lane, 32 apart

// Adds to `sums` the rows of dy that `matches` selects, in order: bit k stands for row `first` + k. Each lane
// adds its columns, from `column` on. Loads four rows at once.
template <typename T>
__device__ void AddMatches(unsigned matches, int64_t first, int64_t width, int64_t column, const T* dy,
                           float (&sums)[kColumns]) {
  constexpr int kAhead = 4;
  while (matches != 0) {
    float v[kAhead][kColumns];
#pragma unroll
    for (int k = 0; k < kAhead; ++k) {
      const T* const from = dy + (first + __ffs(static_cast<int>(matches)) - 1) * width;
#pragma unroll
      for (int c = 0; c < kColumns; ++c) {
        const int64_t j = column + c * kWarp;
        v[k][c] = matches != 0 && j < width ? ToFloat(from[j]) : 0.0f;
      }
      matches &= matches - 1;
    }
#pragma unroll
    for (int k = 0; k < kAhead; ++k) {
#pragma unroll
      for (int c = 0; c < kColumns; ++c) sums[c] += v[k][c];
    }
  }
}

// Adds to `sums` the rows of dy whose index is `row`, in the order of their positions from `begin` to `end`.
// Each lane adds its columns, from `column` on. Must be called by whole warps.
template <typename T, typename Index>
__device__ void AddPart(int64_t begin, int64_t end, int64_t row, int64_t table_rows, int64_t width,
                        int64_t column, const Index* x, const T* dy, float (&sums)[kColumns]) {
  constexpr int kAhead = 4;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  for (int64_t i = begin; i < end; i += kAhead * kWarp) {
    bool match[kAhead];
#pragma unroll
    for (int k = 0; k < kAhead; ++k) {
      const int64_t place = i + k * kWarp + lane;
      match[k] = place < end && RowOf(x[place], table_rows) == row;
    }
#pragma unroll
    for (int k = 0; k < kAhead; ++k) {
      AddMatches(__ballot_sync(kAllLanes, match[k]), i + k * kWarp, width, column, dy, sums);
    }
  }
}

// Computes dtable [table_rows, width], at any address, from dy [indices, width]. Each warp has one row of the
// table. Adjacent rows are in different blocks, because frequent indices are usually adjacent. Sets the heads
// to 0 again. Deterministic.
template <typename T, typename Index>
__global__ void AddRows(int64_t indices, int64_t table_rows, int64_t width, const Index* x, uint32_t* heads,
                        const uint32_t* next, const T* dy, float* dtable) {
  __shared__ uint32_t sorted[kWarps][kWarp];
  __shared__ bool is_long[kWarps];
  __shared__ float partials[kWarps][kColumns][kWarp];
  const int lane = static_cast<int>(threadIdx.x) % kWarp, warp = static_cast<int>(threadIdx.x) / kWarp;
  const int64_t row = blockIdx.x + int64_t{warp} * gridDim.x;

  // The warp walks along its list; lane k keeps the k-th position.
  uint32_t at = row < table_rows ? heads[row] : 0, own = 0;
  int count = 0;
  for (; at != 0 && count < kWarp; ++count) {
    if (lane == count) own = at - 1;
    at = next[at - 1];
  }
  __syncwarp();  // all lanes have read the head
  if (lane == 0) {
    is_long[warp] = at != 0;
    if (row < table_rows) heads[row] = 0;
  }
  if (at == 0 && row < table_rows) {
    int rank = 0;
    for (int k = 0; k < count; ++k) rank += __shfl_sync(kAllLanes, own, k) < own ? 1 : 0;
    if (lane < count) sorted[warp][rank] = own;
    __syncwarp();
    for (int64_t j = lane; j < width; j += kWarp) {
      float sum = 0;
#pragma unroll 4
      for (int k = 0; k < count; ++k) sum += ToFloat(dy[int64_t{sorted[warp][k]} * width + j]);
      dtable[row * width + j] = sum;
    }
  }
  __syncthreads();

  const int64_t part = (indices + kWarps - 1) / kWarps;  // number of indices that each warp scans
  const int64_t begin = warp * part, end = begin + part < indices ? begin + part : indices;
  for (int owner = 0; owner < kWarps; ++owner) {
    if (!is_long[owner]) continue;
    const int64_t long_row = blockIdx.x + int64_t{owner} * gridDim.x;
    for (int64_t column = lane; column - lane < width; column += kColumns * kWarp) {
      float sums[kColumns] = {};
      AddPart(begin, end, long_row, table_rows, width, column, x, dy, sums);
      for (int c = 0; c < kColumns; ++c) partials[warp][c][lane] = sums[c];
      __syncthreads();
      if (const int64_t j = column + warp * kWarp; warp < kColumns && j < width) {
        float total = 0;
        for (int k = 0; k < kWarps; ++k) total += partials[k][warp][lane];
        dtable[long_row * width + j] = total;
      }
      __syncthreads();
    }
  }
}

// `Index`: the C++ type of the row numbers.
template <typename T, typename Index>
class CudaEmbedding final : public LinearOp, public Delivery {
 public:
  CudaEmbedding(Context& context, const EmbeddingParams& params, Fault fault,
                std::unique_ptr<DeviceMemory> heads, std::unique_ptr<DeviceMemory> next)
      : context_(context),
        params_(params),
        output_({.shape = {params.indices, params.width}, .type = context.compute_type()}),
        fault_(std::move(fault)),
        heads_(std::move(heads)),
        next_(std::move(next)) {}

  const TensorDesc& output() const override { return output_; }

  absl::Status Forward(const float* x, const float* table, const float* /*bias*/, float* y) override {
    x_ = As<Index>(x);
    constexpr int kUnit = kVector<float>;
    const bool aligned = params_.width % kUnit == 0 && reinterpret_cast<uintptr_t>(table) % 16 == 0;
    CAIRN_RETURN_IF_ERROR(aligned ? Take<kUnit>(table, y) : Take<1>(table, y));
    context_.Expect(*this);
    return absl::OkStatus();
  }

  absl::Status Backward(const float* x, const float* /*table*/, const float* /*y*/, float* dy, float* /*dx*/,
                        float* dtable, float* /*dbias*/) override {
    auto* const heads = reinterpret_cast<uint32_t*>(heads_->data());
    auto* const next = reinterpret_cast<uint32_t*>(next_->data());
    CAIRN_RETURN_IF_ERROR(CAIRN_LAUNCH(LinkPlaces<Index>, GridFor(params_.indices), kBlock, 0,
                                       context_.stream(), params_.indices, params_.rows, As<Index>(x), heads,
                                       next));
    return CAIRN_LAUNCH((AddRows<T, Index>), static_cast<unsigned>(CeilDiv(params_.rows, kWarps)),
                        kWarps * kWarp, 0, context_.stream(), params_.indices, params_.rows, params_.width,
                        As<Index>(x), heads, next, As<T>(dy), dtable);
  }

  absl::Status Deliver() override {
    const auto noted = fault_.Take();
    if (!noted.has_value()) return absl::OkStatus();
    Index index{};
    CAIRN_CUDA(
        cudaMemcpyAsync(&index, x_ + noted->place, sizeof(index), cudaMemcpyDeviceToHost, context_.stream()));
    CAIRN_CUDA(cudaStreamSynchronize(context_.stream()));  // `index` is read at once
    return absl::InvalidArgumentError(absl::StrCat(params_.what, params_.what.empty() ? "" : ": ", "index ",
                                                   index, " in a table of ", params_.rows,
                                                   " rows: expected 0 to ", params_.rows - 1));
  }

 private:
  template <int kUnit>
  absl::Status Take(const float* table, float* y) {
    constexpr int64_t kMaxBlocks = 1 << 20;
    const RowPlan plan = RowPlan::Make(params_.indices, params_.width / kUnit, kMaxBlocks);
    return CAIRN_LAUNCH((TakeRows<T, Index, kUnit>), plan.grid, plan.block, 0, context_.stream(), plan,
                        params_.rows, params_.width, x_, table, As<T>(y), fault_.word());
  }

  Context& context_;
  const EmbeddingParams params_;
  const TensorDesc output_;
  const Index* x_ = nullptr;  // of the last Forward()
  Fault fault_;
  const std::unique_ptr<DeviceMemory> heads_, next_;  // [rows] and [indices]
};

}  // namespace

absl::StatusOr<std::unique_ptr<LinearOp>> MakeEmbedding(Context& context, const EmbeddingParams& params) {
  if (params.indices < 1 || params.rows < 1 || params.width < 1) {
    return absl::InvalidArgumentError(absl::StrCat("cannot look up ", params.indices, " rows in a table [",
                                                   params.rows, ",", params.width, "]"));
  }
  if (params.ragged_mean) {
    return absl::UnimplementedError("ragged inputs are only computed on CPUs");
  }
  if (params.indices >= kMaxFaultIndices || params.rows >= kMaxFaultIndices) {
    return absl::UnimplementedError(absl::StrCat(params.indices, " indices in a table of ", params.rows,
                                                 " rows: both must be below 2^32"));
  }
  CAIRN_ASSIGN_OR_RETURN(auto fault, Fault::Create());
  CAIRN_ASSIGN_OR_RETURN(auto heads, context.Allocate(params.rows, "embedding: lists of indices"));
  CAIRN_ASSIGN_OR_RETURN(auto next, context.Allocate(params.indices, "embedding: lists of indices"));
  const auto make = [&](auto zero) {
    return VisitType(context.compute_type(), [&](auto* p) -> std::unique_ptr<LinearOp> {
      using T = std::remove_pointer_t<decltype(p)>;
      return std::make_unique<CudaEmbedding<T, decltype(zero)>>(context, params, std::move(fault),
                                                                std::move(heads), std::move(next));
    });
  };
  return IsInteger(params.index_type) ? WithIntegerType(params.index_type, make) : make(0.0f);
}

}  // namespace cairn::kernels::cuda
