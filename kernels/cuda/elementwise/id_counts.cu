// Vectors that count the ids of a row.
#include <cstdint>
#include <memory>
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
#include "kernels/embedding_errors.h"
#include "kernels/id_counts.h"

namespace cairn::kernels::cuda {
namespace {

// The fields of IdCountsParams that a kernel reads.
struct Counting {
  int64_t rows = 0, ids = 0, depth = 0;
  bool ragged = false, once = false, skips_negative = false;
};

// The places of a row's ids in x.
template <typename Id>
__device__ IdSpan PlacesOf(const Counting& counting, const Id* x, int64_t row) {
  if (!counting.ragged) return {row * counting.ids, (row + 1) * counting.ids};
  const auto* const splits = reinterpret_cast<const int64_t*>(x);
  return {counting.rows + 1 + splits[row], counting.rows + 1 + splits[row + 1]};
}

// y [plan.rows, depth]: the threads of a row share its columns, and each reads all ids of the row in order. The
// threads are mapped to the rows of y. `weights`, null for 1, are laid out as x. An id outside the columns is reported
// to `fault`. Deterministic.
template <typename T, typename Id>
__global__ void CountIds(RowPlan plan, Counting counting, const Id* x, const float* weights, T* y,
                         FaultWord* fault) {
  for (int64_t round = 0; round < plan.rounds; ++round) {
    const int64_t row = plan.Row(round);
    if (row >= plan.rows) return;
    const IdSpan places = PlacesOf(counting, x, row);
    if (plan.rank() == 0) {
      for (int64_t place = places.begin; place < places.end; ++place) {
        if (counting.skips_negative && static_cast<int64_t>(x[place]) < 0) continue;
        if (ColumnOf(x[place], counting.depth) < 0) NoteFault(fault, place);
      }
    }
    plan.ForEach<1>(counting.depth, [&](int64_t j) {
      float sum = 0;
      for (int64_t place = places.begin; place < places.end; ++place) {
        if (ColumnOf(x[place], counting.depth) != j) continue;
        const float weight = weights == nullptr ? 1 : weights[place];
        sum = counting.once ? weight : sum + weight;
      }
      y[row * counting.depth + j] = FromFloat<T>(sum);
    });
  }
}

// `Id`: the C++ type of the ids.
template <typename T, typename Id>
class CudaIdCounts final : public NaryOp, public Delivery {
 public:
  CudaIdCounts(Context& context, const IdCountsParams& params, Fault fault)
      : context_(context),
        params_(params),
        output_({.shape = {params.rows, params.depth}, .type = context.compute_type()}),
        fault_(std::move(fault)) {}

  const TensorDesc& output() const override { return output_; }

  absl::Status Forward(absl::Span<const float* const> xs, float* y) override {
    x_ = As<Id>(xs[0]);
    constexpr int64_t kMaxBlocks = 1 << 20;
    const RowPlan plan = RowPlan::Make(params_.rows, params_.depth, kMaxBlocks);
    const Counting counting = {.rows = params_.rows,
                               .ids = params_.ids,
                               .depth = params_.depth,
                               .ragged = params_.ragged,
                               .once = params_.once,
                               .skips_negative = params_.skips_negative};
    const float* const weights = params_.weighted ? xs[1] : nullptr;
    CAIRN_RETURN_IF_ERROR(CAIRN_LAUNCH((CountIds<T, Id>), plan.grid, plan.block, 0, context_.stream(), plan,
                                       counting, x_, weights, As<T>(y), fault_.word()));
    context_.Expect(*this);
    return absl::OkStatus();
  }
  absl::Status Backward(absl::Span<const float* const>, const float*, absl::Span<float* const>) override {
    return absl::OkStatus();
  }

  absl::Status Deliver() override {
    const auto noted = fault_.Take();
    if (!noted.has_value()) return absl::OkStatus();
    Id id{};
    CAIRN_CUDA(
        cudaMemcpyAsync(&id, x_ + noted->place, sizeof(id), cudaMemcpyDeviceToHost, context_.stream()));
    CAIRN_CUDA(cudaStreamSynchronize(context_.stream()));  // `id` is read at once
    return NotInTable(id, params_.depth, params_.what);
  }

 private:
  Context& context_;
  const IdCountsParams params_;
  const TensorDesc output_;
  const Id* x_ = nullptr;  // of the last Forward()
  Fault fault_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<NaryOp>> MakeIdCounts(Context& context, const IdCountsParams& params) {
  CAIRN_RETURN_IF_ERROR(Validate(params));
  if (params.rows * params.ids >= kMaxFaultIndices) {
    return absl::UnimplementedError(
        absl::StrCat(params.ids, " ids in each of ", params.rows, " vectors: all ids must be below 2^32"));
  }
  CAIRN_ASSIGN_OR_RETURN(auto fault, Fault::Create());
  const auto make = [&](auto zero) {
    return VisitType(context.compute_type(), [&](auto* p) -> std::unique_ptr<NaryOp> {
      using T = std::remove_pointer_t<decltype(p)>;
      return std::make_unique<CudaIdCounts<T, decltype(zero)>>(context, params, std::move(fault));
    });
  };
  return IsInteger(params.id_type) ? WithIntegerType(params.id_type, make) : make(0.0f);
}

}  // namespace cairn::kernels::cuda
