// Softmax, row by row.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "kernels/cpu/loops/activation_loops.h"
#include "kernels/cpu/loops/instruction_sets.h"
#include "kernels/cpu/ops.h"
#include "kernels/cpu/parallel.h"
#include "kernels/formulas.h"

namespace cairn::kernels::cpu {
namespace {

class CpuSoftmax final : public UnaryOp {
 public:
  CpuSoftmax(onednn::Context& context, const TensorDesc& input)
      : context_(context),
        output_(input),
        classes_(input.shape[input.shape.rank() - 1]),
        batch_(input.shape.num_elements() / classes_) {}

  const TensorDesc& output() const override { return output_; }

  absl::Status Forward(const float* x, float* y) override {
    ForEachRow([=, this](int64_t begin) {
      float* const of_row = y + begin;
      const float scale = 1.0f / code_.exponentials(x + begin, classes_, of_row).sum;
      for (int64_t j = 0; j < classes_; ++j) of_row[j] *= scale;
    });
    return absl::OkStatus();
  }

  absl::Status Backward(const float* /*x*/, const float* y, const float* dy, float* dx) override {
    ForEachRow([=, this](int64_t begin) {
      const int64_t end = begin + classes_;
      float dot = 0;
      for (int64_t j = begin; j < end; ++j) dot += y[j] * dy[j];
      for (int64_t j = begin; j < end; ++j) dx[j] = SoftmaxGradient(y[j], dy[j], dot);
    });
    return absl::OkStatus();
  }

 private:
  // `body` takes the offset of a row.
  template <typename Body>
  void ForEachRow(const Body& body) {
    const int64_t grain = std::max<int64_t>(1, kElementGrain / classes_);
    ParallelFor(context_, batch_, grain, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) body(row * classes_);
    });
  }

  onednn::Context& context_;
  const TensorDesc output_;
  const int64_t classes_, batch_;
  const ActivationCode code_ = CAIRN_BEST_LOOPS(ActivationLoops);
};

}  // namespace

absl::StatusOr<std::unique_ptr<UnaryOp>> MakeSoftmax(onednn::Context& context, const TensorDesc& input) {
  if (input.shape.rank() < 1 || input.layout != Layout::kRowMajor || input.shape.num_elements() < 1) {
    return absl::InvalidArgumentError(absl::StrCat("cannot compute softmax over ", input.ToString()));
  }
  return std::make_unique<CpuSoftmax>(context, input);
}

}  // namespace cairn::kernels::cpu
