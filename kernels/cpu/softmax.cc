// Softmax, row by row, in the calling thread.
#include "absl/strings/str_cat.h"
#include "kernels/cpu/ops.h"
#include "kernels/cpu/softmax_rows.h"
#include "kernels/formulas.h"

namespace cairn::kernels::cpu {
namespace {

class CpuSoftmax final : public Softmax {
 public:
  CpuSoftmax(int64_t batch, int64_t classes) : batch_(batch), classes_(classes) {}

  absl::Status Forward(const float* x, float* y) override {
    for (int64_t row = 0; row < batch_; ++row, x += classes_, y += classes_) {
      const float scale = 1.0f / ExpRow(x, classes_, y).sum;
      for (int64_t j = 0; j < classes_; ++j) y[j] *= scale;
    }
    return absl::OkStatus();
  }

  absl::Status Backward(const float* y, const float* dy, float* dx) override {
    for (int64_t row = 0; row < batch_; ++row, y += classes_, dy += classes_, dx += classes_) {
      float dot = 0;
      for (int64_t j = 0; j < classes_; ++j) dot += y[j] * dy[j];
      for (int64_t j = 0; j < classes_; ++j) dx[j] = SoftmaxGradient(y[j], dy[j], dot);
    }
    return absl::OkStatus();
  }

 private:
  const int64_t batch_, classes_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Softmax>> MakeSoftmax(int64_t batch, int64_t classes) {
  if (batch < 1 || classes < 1) {
    return absl::InvalidArgumentError(absl::StrCat("softmax over [", batch, ",", classes, "]"));
  }
  return std::make_unique<CpuSoftmax>(batch, classes);
}

}  // namespace cairn::kernels::cpu
