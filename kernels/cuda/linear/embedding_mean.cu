// Means of rows of a table: an embedding of a ragged tensor, of which each example has any number of row numbers.
//
// The number of row numbers differs from step to step, and a recorded step has fixed launches. So kernels read it
// from device memory, and their grids do not depend on it.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <type_traits>
#include <utility>

#include "absl/types/span.h"
#include "common/core/status.h"
#include "kernels/cuda/blocks/element.h"
#include "kernels/cuda/blocks/launch.h"
#include "kernels/cuda/linear/table_gradient.h"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/runtime/context.h"
#include "kernels/cuda/runtime/fault.h"
#include "kernels/cuda/runtime/status.h"
#include "kernels/embedding_errors.h"

namespace cairn::kernels::cuda {
namespace {

// The ragged tensor x, in one piece of memory: splits [rows + 1], row numbers, and links, as many of each.
struct Ragged {
  struct Link {
    uint32_t next, row;  // working memory of LinkPlaces(); the row of the ragged tensor
  };
  static_assert(sizeof(Link) == sizeof(int64_t));

  int64_t rows = 0;
  int64_t* splits = nullptr;

  __device__ int64_t count() const { return splits[rows]; }
  __device__ int64_t size_of(int64_t row) const { return splits[row + 1] - splits[row]; }
  __device__ int64_t index(int64_t place) const { return splits[rows + 1 + place]; }
  __device__ Link& link(int64_t place) const {
    return reinterpret_cast<Link*>(splits + rows + 1 + count())[place];
  }
};

constexpr int kMeanWarps = 8;  // warps of a block of MeanRows()

// The sum of column `column` of the table's rows for the indices from place `begin` to `end`, in order. Loads four
// at once. `row` is the row of x that has these places. An index outside the table is reported.
__device__ float AddColumn(const Ragged& x, int64_t row, int64_t begin, int64_t end, int64_t table_rows,
                           int64_t width, int64_t column, const float* table, FaultWord* fault) {
  constexpr int kPlacesAhead = 4;
  float sum = 0;
  for (int64_t place = begin; place < end; place += kPlacesAhead) {
    float v[kPlacesAhead];
#pragma unroll
    for (int k = 0; k < kPlacesAhead; ++k) {
      const bool exists = place + k < end;
      const int64_t table_row = exists ? RowOf(x.index(place + k), table_rows) : -1;
      if (exists && table_row < 0 && column == 0) {
        NoteFault(fault, row, static_cast<uint32_t>(place + k - x.splits[row]));
      }
      v[k] = table_row >= 0 && column < width ? table[table_row * width + column] : 0.0f;
    }
#pragma unroll
    for (int k = 0; k < kPlacesAhead; ++k) sum += v[k];
  }
  return sum;
}

// Computes y [x.rows, width] from table [table_rows, width], at any address. The blocks stride over the rows of x.
// The warps of a block have equal runs of a row's indices, and their sums are added in order; each lane has a
// column. An index outside the table is reported to `fault` and counts as 0. A row without
// indices is 0. Deterministic.
template <typename T>
__global__ void MeanRows(Ragged x, int64_t table_rows, int64_t width, const float* table, T* y,
                         FaultWord* fault) {
  __shared__ float partials[kMeanWarps][kWarp];
  const int lane = static_cast<int>(threadIdx.x) % kWarp, warp = static_cast<int>(threadIdx.x) / kWarp;
  for (int64_t row = blockIdx.x; row < x.rows; row += gridDim.x) {
    const int64_t count = x.size_of(row), part = (count + kMeanWarps - 1) / kMeanWarps;
    const int64_t all = x.splits[row], last = all + count;
    const int64_t begin = all + warp * part, end = begin + part < last ? begin + part : last;
    for (int64_t column = lane; column - lane < width; column += kWarp) {
      partials[warp][lane] = AddColumn(x, row, begin, end, table_rows, width, column, table, fault);
      __syncthreads();
      if (warp == 0 && column < width) {
        float total = 0;
        for (int k = 0; k < kMeanWarps; ++k) total += partials[k][lane];
        y[row * width + column] = FromFloat<T>(count == 0 ? 0.0f : total / static_cast<float>(count));
      }
      __syncthreads();
    }
  }
}

// The places of all indices. dy [x.rows, width].
template <typename T>
struct RaggedPlaces {
  Ragged x;
  int64_t width = 0;
  const T* dy = nullptr;

  __device__ int64_t Count() const { return x.count(); }
  __device__ int64_t TableRow(int64_t place, int64_t table_rows) const {
    return RowOf(x.index(place), table_rows);
  }
  // Finds the row that has the place: the last row that begins at it or before.
  __device__ void Prepare(int64_t place) const {
    int64_t low = 0, high = x.rows;
    while (high - low > 1) {
      const int64_t middle = low + (high - low) / 2;
      (x.splits[middle] <= place ? low : high) = middle;
    }
    x.link(place).row = static_cast<uint32_t>(low);
  }
  __device__ uint32_t& Next(int64_t place) const { return x.link(place).next; }
  __device__ float Gradient(int64_t place, int64_t column) const {
    const int64_t row = x.link(place).row;
    return ToFloat(dy[row * width + column]) / static_cast<float>(x.size_of(row));
  }
};

template <typename T>
class CudaEmbeddingMean final : public LinearOp, public Delivery {
 public:
  CudaEmbeddingMean(Context& context, const EmbeddingParams& params, Fault fault,
                    std::unique_ptr<DeviceMemory> heads)
      : context_(context),
        params_(params),
        output_({.shape = {params.indices, params.width}, .type = context.compute_type()}),
        fault_(std::move(fault)),
        heads_(std::move(heads)) {}

  const TensorDesc& output() const override { return output_; }

  absl::Status Forward(const float* x, const float* table, const float* /*bias*/, float* y) override {
    x_ = RaggedAt(x);
    constexpr int64_t kMaxBlocks = 1 << 20;
    CAIRN_RETURN_IF_ERROR(CAIRN_LAUNCH(
        MeanRows<T>, static_cast<unsigned>(std::min(params_.indices, kMaxBlocks)), kMeanWarps * kWarp, 0,
        context_.stream(), x_, params_.rows, params_.width, table, As<T>(y), fault_.word()));
    context_.Expect(*this);
    return absl::OkStatus();
  }

  absl::Status Backward(const float* x, const float* /*table*/, const float* /*y*/, float* dy, float* /*dx*/,
                        float* dtable, float* /*dbias*/) override {
    constexpr int kBlocksOfAMultiprocessor = 8;
    const RaggedPlaces<T> places = {.x = RaggedAt(x), .width = params_.width, .dy = As<T>(dy)};
    return WriteTableGradient(context_.stream(), places,
                              static_cast<unsigned>(context_.multiprocessors() * kBlocksOfAMultiprocessor),
                              {.rows = params_.rows,
                               .width = params_.width,
                               .heads = reinterpret_cast<uint32_t*>(heads_->data()),
                               .gradient = dtable});
  }

  absl::Status Deliver() override {
    const auto noted = fault_.Take();
    if (!noted.has_value()) return absl::OkStatus();
    int64_t begin = 0, index = 0;
    CAIRN_RETURN_IF_ERROR(ReadAtOnce(x_.splits + noted->place, absl::MakeSpan(&begin, 1)));
    CAIRN_RETURN_IF_ERROR(
        ReadAtOnce(x_.splits + x_.rows + 1 + begin + noted->number, absl::MakeSpan(&index, 1)));
    return NotInTable(index, params_.rows, params_.what);
  }

 private:
  // The kernels write the working memory behind the indices.
  Ragged RaggedAt(const float* x) const {
    return {.rows = params_.indices, .splits = reinterpret_cast<int64_t*>(const_cast<float*>(x))};
  }
  absl::Status ReadAtOnce(const int64_t* from, absl::Span<int64_t> to) const {
    CAIRN_CUDA(cudaMemcpyAsync(to.data(), from, to.size() * sizeof(int64_t), cudaMemcpyDeviceToHost,
                               context_.stream()));
    CAIRN_CUDA(cudaStreamSynchronize(context_.stream()));
    return absl::OkStatus();
  }

  Context& context_;
  const EmbeddingParams params_;
  const TensorDesc output_;
  Ragged x_;  // of the last Forward()
  Fault fault_;
  const std::unique_ptr<DeviceMemory> heads_;  // [rows]
};

}  // namespace

absl::StatusOr<std::unique_ptr<LinearOp>> MakeEmbeddingMean(Context& context, const EmbeddingParams& params) {
  CAIRN_ASSIGN_OR_RETURN(auto fault, Fault::Create());
  CAIRN_ASSIGN_OR_RETURN(auto heads, context.Allocate(params.rows, "embedding: lists of indices"));
  return VisitType(context.compute_type(), [&](auto* p) -> std::unique_ptr<LinearOp> {
    using T = std::remove_pointer_t<decltype(p)>;
    return std::make_unique<CudaEmbeddingMean<T>>(context, params, std::move(fault), std::move(heads));
  });
}

}  // namespace cairn::kernels::cuda
