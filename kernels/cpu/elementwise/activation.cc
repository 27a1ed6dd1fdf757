// Element-wise functions over all floats of a tensor, in any layout, with our own loops.
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/core/status.h"
#include "kernels/cpu/loops/activation_loops.h"
#include "kernels/cpu/loops/instruction_sets.h"
#include "kernels/cpu/ops.h"
#include "kernels/cpu/parallel.h"

namespace cairn::kernels::cpu {
namespace {

class CpuActivation final : public UnaryOp {
 public:
  CpuActivation(onednn::Context& context, TensorDesc output, const ActivationParams& params)
      : context_(context), output_(std::move(output)), count_(output_.num_floats()), params_(params) {}

  const TensorDesc& output() const override { return output_; }

  absl::Status Forward(const float* x, float* y) override {
    ParallelFor(context_, count_, kElementGrain, [=, this](int64_t begin, int64_t end) {
      code_.forward(params_, x + begin, end - begin, y + begin);
    });
    return absl::OkStatus();
  }

  absl::Status Backward(const float* x, const float* /*y*/, const float* dy, float* dx) override {
    ParallelFor(context_, count_, kElementGrain, [=, this](int64_t begin, int64_t end) {
      code_.backward(params_, x + begin, dy + begin, end - begin, dx + begin);
    });
    return absl::OkStatus();
  }

 private:
  onednn::Context& context_;
  const TensorDesc output_;
  const int64_t count_;
  const ActivationParams params_;
  const ActivationCode code_ = CAIRN_BEST_LOOPS(ActivationLoops);
};

}  // namespace

absl::StatusOr<std::unique_ptr<UnaryOp>> MakeActivation(onednn::Context& context, const TensorDesc& input,
                                                        const ActivationParams& params) {
  if (input.num_floats() != input.shape.num_elements() && !params.keeps_zero()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the activation does not map 0 to 0, as the padding channels require, for ", input.ToString()));
  }
  return std::make_unique<CpuActivation>(context, input, params);
}

}  // namespace cairn::kernels::cpu
