// Dot products of pairs of rows, example by example.
#include "kernels/pair_dots.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "common/core/status.h"
#include "kernels/cpu/ops.h"
#include "kernels/cpu/parallel.h"

namespace cairn::kernels::cpu {
namespace {

float DotOfRows(const float* a, const float* b, int64_t width) {
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t k = 0; k < width; ++k) sum += a[k] * b[k];
  return sum;
}

class CpuPairDots final : public UnaryOp {
 public:
  CpuPairDots(onednn::Context& context, const PairDots& pairs, TensorDesc output, bool normalize)
      : context_(context),
        pairs_(pairs),
        output_(std::move(output)),
        inverse_norms_(normalize ? static_cast<size_t>(pairs.batch * pairs.rows) : 0) {}

  const TensorDesc& output() const override { return output_; }

  absl::Status Forward(const float* x, float* y) override {
    ForExamples([&](int64_t example) {
      const float* const rows = x + example * pairs_.rows * pairs_.width;
      float* const to = y + example * pairs_.outputs;
      for (int64_t i = 0; i < pairs_.rows && normalizes(); ++i)
        inverse_norms_[static_cast<size_t>(example * pairs_.rows + i)] =
            InverseNorm(DotOfRows(rows + i * pairs_.width, rows + i * pairs_.width, pairs_.width));
      if (pairs_.square) std::fill_n(to, pairs_.outputs, 0.0f);
      for (int64_t i = 0; i < pairs_.rows; ++i) {
        for (int64_t j = 0; j < pairs_.rows; ++j) {
          const int64_t index = pairs_.IndexOf(i, j);
          if (index < 0) continue;
          to[index] = DotOfRows(rows + i * pairs_.width, rows + j * pairs_.width, pairs_.width) *
                      Scale(example, i) * Scale(example, j);
        }
      }
    });
    return absl::OkStatus();
  }

  absl::Status Backward(const float* x, const float* y, const float* dy, float* dx) override {
    ForExamples([&](int64_t example) {
      const int64_t first = example * pairs_.rows * pairs_.width;
      for (int64_t i = 0; i < pairs_.rows; ++i)
        BackwardOfRow(example, i, x + first, y + example * pairs_.outputs, dy + example * pairs_.outputs,
                      dx + first + i * pairs_.width);
    });
    return absl::OkStatus();
  }

 private:
  bool normalizes() const { return !inverse_norms_.empty(); }
  float Scale(int64_t example, int64_t row) const {
    return normalizes() ? inverse_norms_[static_cast<size_t>(example * pairs_.rows + row)] : 1.0f;
  }

  // With r = 1 / |x_i|, and the sums over the pairs of row i: dx_i = r (sum dy_ij x_j / |x_j| - x_i r sum dy_ij
  // y_ij).
  void BackwardOfRow(int64_t example, int64_t i, const float* rows, const float* y, const float* dy,
                     float* dx) const {
    const float scale = Scale(example, i);
    float projection = 0;
    std::fill_n(dx, pairs_.width, 0.0f);
    for (int64_t j = 0; j < pairs_.rows; ++j) {
      for (const int64_t index : {pairs_.IndexOf(i, j), pairs_.IndexOf(j, i)}) {
        if (index < 0) continue;
        const float factor = dy[index] * Scale(example, j) * scale;
        const float* const other = rows + j * pairs_.width;
        for (int64_t k = 0; k < pairs_.width; ++k) dx[k] += factor * other[k];
        projection += dy[index] * y[index];
      }
    }
    if (!normalizes() || IsLimited(scale)) return;
    const float* const own = rows + i * pairs_.width;
    for (int64_t k = 0; k < pairs_.width; ++k) dx[k] -= own[k] * scale * scale * projection;
  }

  template <typename Body>
  void ForExamples(const Body& body) const {
    const int64_t work = pairs_.rows * pairs_.rows * pairs_.width;
    ParallelFor(context_, pairs_.batch, 1 + kElementGrain / work, [&](int64_t begin, int64_t end) {
      for (int64_t example = begin; example < end; ++example) body(example);
    });
  }

  onednn::Context& context_;
  const PairDots pairs_;
  const TensorDesc output_;
  std::vector<float> inverse_norms_;  // [batch, rows]; empty without normalization
};

}  // namespace

absl::StatusOr<std::unique_ptr<UnaryOp>> MakePairDots(onednn::Context& context,
                                                      const PairDotsParams& params) {
  CAIRN_ASSIGN_OR_RETURN(const PairDots pairs, MakePairs(params));
  return std::make_unique<CpuPairDots>(context, pairs, OutputDesc(params, pairs), params.normalize);
}

}  // namespace cairn::kernels::cpu
