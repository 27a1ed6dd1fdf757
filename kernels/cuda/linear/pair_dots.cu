// Dot products of pairs of rows, example by example.
#include <type_traits>
#include <utility>

#include "common/core/status.h"
#include "kernels/cuda/blocks/element.h"
#include "kernels/cuda/blocks/launch.h"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/runtime/context.h"
#include "kernels/pair_dots.h"

namespace cairn::kernels::cuda {
namespace {

template <typename T>
__device__ float DotOfRows(const T* a, const T* b, int64_t width) {
  float sum = 0;
  for (int64_t k = 0; k < width; ++k) sum += ToFloat(a[k]) * ToFloat(b[k]);
  return sum;
}

// 1 / |row| of each row of x [rows, width]. One thread per row, grid-strided. Deterministic.
template <typename T>
__global__ void InverseNorms(int64_t rows, int64_t width, const T* x, float* inverse_norms) {
  for (int64_t row = CAIRN_GLOBAL_THREAD; row < rows; row += CAIRN_GLOBAL_THREADS) {
    inverse_norms[row] = InverseNorm(DotOfRows(x + row * width, x + row * width, width));
  }
}

// y [batch, outputs] from x [batch, rows, width]. One thread for each combination of two rows of an example,
// grid-strided; adjacent threads share one row. inverse_norms is [batch, rows] or null. Deterministic.
template <typename T>
__global__ void PairDotsForward(PairDots pairs, const T* x, const float* inverse_norms, T* y) {
  const int64_t combinations = pairs.rows * pairs.rows;
  for (int64_t at = CAIRN_GLOBAL_THREAD; at < pairs.batch * combinations; at += CAIRN_GLOBAL_THREADS) {
    const int64_t example = at / combinations, i = at % combinations / pairs.rows, j = at % pairs.rows;
    const int64_t index = pairs.IndexOf(i, j);
    if (index < 0) {
      if (pairs.square) y[at] = FromFloat<T>(0.0f);
      continue;
    }
    const int64_t a = example * pairs.rows + i, b = example * pairs.rows + j;
    float dot = DotOfRows(x + a * pairs.width, x + b * pairs.width, pairs.width);
    if (inverse_norms != nullptr) dot *= inverse_norms[a] * inverse_norms[b];
    y[example * pairs.outputs + index] = FromFloat<T>(dot);
  }
}

// dx [batch, rows, width] from x, y and dy: the sum over the pairs of each row, and with norms the part along
// the row is removed. One thread per element of dx, grid-strided; adjacent threads read adjacent elements.
// Deterministic.
template <typename T>
__global__ void PairDotsBackward(PairDots pairs, const T* x, const float* inverse_norms, const T* y,
                                 const T* dy, T* dx) {
  const int64_t elements = pairs.batch * pairs.rows * pairs.width;
  for (int64_t at = CAIRN_GLOBAL_THREAD; at < elements; at += CAIRN_GLOBAL_THREADS) {
    const int64_t row = at / pairs.width, k = at % pairs.width;
    const int64_t i = row % pairs.rows, first = row - i, outputs = row / pairs.rows * pairs.outputs;
    float sum = 0, projection = 0;
    for (int64_t j = 0; j < pairs.rows; ++j) {
      const int64_t indices[] = {pairs.IndexOf(i, j), pairs.IndexOf(j, i)};
      for (const int64_t index : indices) {
        if (index < 0) continue;
        const float gradient = ToFloat(dy[outputs + index]);
        const float scale = inverse_norms == nullptr ? 1.0f : inverse_norms[first + j];
        sum += gradient * scale * ToFloat(x[(first + j) * pairs.width + k]);
        if (inverse_norms != nullptr) projection += gradient * ToFloat(y[outputs + index]);
      }
    }
    if (inverse_norms != nullptr) {
      const float scale = inverse_norms[row];
      if (!IsLimited(scale)) sum -= ToFloat(x[at]) * scale * projection;
      sum *= scale;
    }
    dx[at] = FromFloat<T>(sum);
  }
}

template <typename T>
class CudaPairDots final : public UnaryOp {
 public:
  CudaPairDots(Context& context, const PairDots& pairs, TensorDesc output)
      : context_(context), pairs_(pairs), output_(std::move(output)) {}

  absl::Status AllocateNorms() {
    CAIRN_ASSIGN_OR_RETURN(inverse_norms_,
                           context_.Allocate(pairs_.batch * pairs_.rows, "dot products: norms"));
    return absl::OkStatus();
  }

  const TensorDesc& output() const override { return output_; }

  absl::Status Forward(const float* x, float* y) override {
    const int64_t rows = pairs_.batch * pairs_.rows;
    if (norms() != nullptr) {
      CAIRN_RETURN_IF_ERROR(CAIRN_LAUNCH(InverseNorms<T>, GridFor(rows), kBlock, 0, context_.stream(), rows,
                                         pairs_.width, As<T>(x), norms()));
    }
    return CAIRN_LAUNCH(PairDotsForward<T>, GridFor(rows * pairs_.rows), kBlock, 0, context_.stream(), pairs_,
                        As<T>(x), norms(), As<T>(y));
  }
  absl::Status Backward(const float* x, const float* y, const float* dy, float* dx) override {
    return CAIRN_LAUNCH(PairDotsBackward<T>, GridFor(pairs_.batch * pairs_.rows * pairs_.width), kBlock, 0,
                        context_.stream(), pairs_, As<T>(x), norms(), As<T>(y), As<T>(dy), As<T>(dx));
  }

 private:
  float* norms() const { return inverse_norms_ == nullptr ? nullptr : inverse_norms_->data(); }

  Context& context_;
  const PairDots pairs_;
  const TensorDesc output_;
  std::unique_ptr<DeviceMemory> inverse_norms_;  // [batch, rows]; null without normalization
};

}  // namespace

absl::StatusOr<std::unique_ptr<UnaryOp>> MakePairDots(Context& context, const PairDotsParams& params) {
  CAIRN_ASSIGN_OR_RETURN(const PairDots pairs, MakePairs(params));
  return VisitType(params.input.type, [&](auto* p) -> absl::StatusOr<std::unique_ptr<UnaryOp>> {
    using T = std::remove_pointer_t<decltype(p)>;
    auto op = std::make_unique<CudaPairDots<T>>(context, pairs, OutputDesc(params, pairs));
    if (params.normalize) CAIRN_RETURN_IF_ERROR(op->AllocateNorms());
    return op;
  });
}

}  // namespace cairn::kernels::cuda
