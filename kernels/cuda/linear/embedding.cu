// Rows of a table by index. The gradient is dense: rows without an index are 0.
#include <algorithm>
#include <cmath>
#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/core/status.h"
#include "kernels/cuda/blocks/element.h"
#include "kernels/cuda/blocks/launch.h"
#include "kernels/cuda/blocks/rows.h"
#include "kernels/cuda/linear/table_gradient.h"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/runtime/context.h"
#include "kernels/cuda/runtime/fault.h"
#include "kernels/cuda/runtime/status.h"
#include "kernels/embedding_errors.h"

namespace cairn::kernels::cuda {
namespace {

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

// The places of `count` indices, one for each row of dy [count, width].
template <typename T, typename Index>
struct Places {
  int64_t count = 0, width = 0;
  const Index* x = nullptr;
  const T* dy = nullptr;
  uint32_t* next = nullptr;  // [count]

  __device__ int64_t Count() const { return count; }
  __device__ int64_t TableRow(int64_t place, int64_t table_rows) const { return RowOf(x[place], table_rows); }
  __device__ void Prepare(int64_t /*place*/) const {}
  __device__ uint32_t& Next(int64_t place) const { return next[place]; }
  __device__ float Gradient(int64_t place, int64_t column) const {
    return ToFloat(dy[place * width + column]);
  }
};

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
    const Places<T, Index> places = {.count = params_.indices,
                                     .width = params_.width,
                                     .x = As<Index>(x),
                                     .dy = As<T>(dy),
                                     .next = reinterpret_cast<uint32_t*>(next_->data())};
    return WriteTableGradient(context_.stream(), places, GridFor(params_.indices),
                              {.rows = params_.rows,
                               .width = params_.width,
                               .heads = reinterpret_cast<uint32_t*>(heads_->data()),
                               .gradient = dtable});
  }

  absl::Status Deliver() override {
    const auto noted = fault_.Take();
    if (!noted.has_value()) return absl::OkStatus();
    Index index{};
    CAIRN_CUDA(
        cudaMemcpyAsync(&index, x_ + noted->place, sizeof(index), cudaMemcpyDeviceToHost, context_.stream()));
    CAIRN_CUDA(cudaStreamSynchronize(context_.stream()));  // `index` is read at once
    return NotInTable(index, params_.rows, params_.what);
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
  if (params.indices >= kMaxFaultIndices || params.rows >= kMaxFaultIndices) {
    return absl::UnimplementedError(absl::StrCat(params.indices, " indices in a table of ", params.rows,
                                                 " rows: both must be below 2^32"));
  }
  if (params.ragged_mean) return MakeEmbeddingMean(context, params);
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
