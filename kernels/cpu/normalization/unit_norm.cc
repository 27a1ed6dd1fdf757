// Divides each row by its L2 norm.
#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "kernels/cpu/ops.h"
#include "kernels/cpu/parallel.h"
#include "kernels/formulas.h"

namespace cairn::kernels::cpu {
namespace {

class CpuUnitNorm final : public UnaryOp {
 public:
  CpuUnitNorm(onednn::Context& context, const TensorDesc& input, float epsilon)
      : context_(context),
        output_(input),
        width_(input.shape[input.shape.rank() - 1]),
        rows_(input.shape.num_elements() / width_),
        epsilon_(epsilon) {}

  const TensorDesc& output() const override { return output_; }

  absl::Status Forward(const float* x, float* y) override {
    ForRows([=, this](int64_t begin) {
      const float inverse = InverseNorm(SumOfProducts(x + begin, x + begin), epsilon_);
      for (int64_t j = begin; j < begin + width_; ++j) y[j] = x[j] * inverse;
    });
    return absl::OkStatus();
  }

  absl::Status Backward(const float* x, const float* y, const float* dy, float* dx) override {
    ForRows([=, this](int64_t begin) {
      const float squares = SumOfProducts(x + begin, x + begin), inverse = InverseNorm(squares, epsilon_);
      const float dot = UnitNormDot(squares, epsilon_, SumOfProducts(y + begin, dy + begin));
      for (int64_t j = begin; j < begin + width_; ++j) dx[j] = (dy[j] - y[j] * dot) * inverse;
    });
    return absl::OkStatus();
  }

 private:
  // In several sums, which the compiler keeps in a vector.
  float SumOfProducts(const float* a, const float* b) const {
    constexpr int kSums = 16;
    float sums[kSums] = {};
    int64_t j = 0;
    for (; j + kSums <= width_; j += kSums) {
      for (int k = 0; k < kSums; ++k) sums[k] += a[j + k] * b[j + k];
    }
    for (; j < width_; ++j) sums[0] += a[j] * b[j];
    float sum = 0;
    for (const float each : sums) sum += each;
    return sum;
  }
  // Calls body(the beginning of a row).
  template <typename Body>
  void ForRows(const Body& body) const {
    ParallelFor(context_, rows_, 1 + kElementGrain / width_, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) body(row * width_);
    });
  }

  onednn::Context& context_;
  const TensorDesc output_;
  const int64_t width_, rows_;
  const float epsilon_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<UnaryOp>> MakeUnitNorm(onednn::Context& context,
                                                      const UnitNormParams& params) {
  const TensorDesc& input = params.input;
  if (input.shape.rank() < 1 || input.layout != Layout::kRowMajor || input.shape.num_elements() < 1) {
    return absl::InvalidArgumentError(absl::StrCat("cannot normalize the rows of ", input.ToString()));
  }
  return std::make_unique<CpuUnitNorm>(context, input, params.epsilon);
}

}  // namespace cairn::kernels::cpu
