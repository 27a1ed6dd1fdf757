// Cumulative sums along the middle axis of [n, steps, c].
#include "kernels/cumulative_sum.h"

#include <algorithm>
#include <cstdint>
#include <memory>

#include "common/core/status.h"
#include "kernels/cpu/ops.h"
#include "kernels/cpu/parallel.h"

namespace cairn::kernels::cpu {
namespace {

class CpuCumulativeSum final : public UnaryOp {
 public:
  CpuCumulativeSum(onednn::Context& context, const TensorDesc& input) : context_(context), output_(input) {}

  const TensorDesc& output() const override { return output_; }

  absl::Status Forward(const float* x, float* y) override {
    SumUp(x, /*from_last=*/false, y);
    return absl::OkStatus();
  }
  absl::Status Backward(const float*, const float*, const float* dy, float* dx) override {
    SumUp(dy, /*from_last=*/true, dx);
    return absl::OkStatus();
  }

 private:
  static constexpr int64_t kColumns = 64;  // of one block, whose sums stay in the cache

  void SumUp(const float* x, bool from_last, float* y) const {
    const int64_t steps = output_.shape[1], columns = output_.shape[2];
    const int64_t blocks = (columns + kColumns - 1) / kColumns;
    const int64_t grain = 1 + kElementGrain / (steps * std::min(columns, kColumns));
    ParallelFor(context_, output_.shape[0] * blocks, grain, [&](int64_t begin, int64_t end) {
      for (int64_t block = begin; block < end; ++block) {
        const int64_t first = block % blocks * kColumns, count = std::min(kColumns, columns - first);
        double sums[kColumns] = {};
        for (int64_t i = 0; i < steps; ++i) {
          const int64_t step = from_last ? steps - 1 - i : i;
          const int64_t at = (block / blocks * steps + step) * columns + first;
          for (int64_t c = 0; c < count; ++c) {
            sums[c] += double{x[at + c]};
            y[at + c] = static_cast<float>(sums[c]);
          }
        }
      }
    });
  }

  onednn::Context& context_;
  const TensorDesc output_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<UnaryOp>> MakeCumulativeSum(onednn::Context& context,
                                                           const CumulativeSumParams& params) {
  CAIRN_RETURN_IF_ERROR(Validate(params));
  return std::make_unique<CpuCumulativeSum>(context, params.input);
}

}  // namespace cairn::kernels::cpu
