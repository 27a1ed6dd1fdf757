// Softmax, row by row, in the calling thread.
#include "absl/strings/str_cat.h"
#include "kernels/cpu/loops/activation_loops.h"
#include "kernels/cpu/loops/instruction_sets.h"
#include "kernels/cpu/ops.h"
#include "kernels/formulas.h"

namespace cairn::kernels::cpu {
namespace {

class CpuSoftmax final : public UnaryOp {
 public:
  explicit CpuSoftmax(const TensorDesc& input)
      : output_(input),
        classes_(input.shape[input.shape.rank() - 1]),
        batch_(input.shape.num_elements() / classes_) {}

  const TensorDesc& output() const override { return output_; }

  absl::Status Forward(const float* x, float* y) override {
    for (int64_t row = 0; row < batch_; ++row, x += classes_, y += classes_) {
      const float scale = 1.0f / code_.exponentials(x, classes_, y).sum;
      for (int64_t j = 0; j < classes_; ++j) y[j] *= scale;
    }
    return absl::OkStatus();
  }

  absl::Status Backward(const float* /*x*/, const float* y, const float* dy, float* dx) override {
    for (int64_t row = 0; row < batch_; ++row, y += classes_, dy += classes_, dx += classes_) {
      float dot = 0;
      for (int64_t j = 0; j < classes_; ++j) dot += y[j] * dy[j];
      for (int64_t j = 0; j < classes_; ++j) dx[j] = SoftmaxGradient(y[j], dy[j], dot);
    }
    return absl::OkStatus();
  }

 private:
  const TensorDesc output_;
  const int64_t classes_, batch_;
  const ActivationCode code_ = CAIRN_BEST_LOOPS(ActivationLoops);
};

}  // namespace

absl::StatusOr<std::unique_ptr<UnaryOp>> MakeSoftmax(const TensorDesc& input) {
  if (input.shape.rank() < 1 || input.layout != Layout::kRowMajor || input.shape.num_elements() < 1) {
    return absl::InvalidArgumentError(absl::StrCat("cannot compute softmax over ", input.ToString()));
  }
  return std::make_unique<CpuSoftmax>(input);
}

}  // namespace cairn::kernels::cpu
