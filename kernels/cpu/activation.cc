// Element-wise functions: the scalar formulas over all floats of a tensor, in whatever layout.
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/cpu/ops.h"
#include "kernels/cpu/parallel.h"
#include "kernels/formulas.h"

namespace cairn::kernels::cpu {
namespace {

class CpuActivation final : public UnaryOp {
 public:
  CpuActivation(onednn::Context& context, TensorDesc output, const ActivationParams& params)
      : context_(context), output_(std::move(output)), count_(output_.num_floats()), params_(params) {}

  const TensorDesc& output() const override { return output_; }

  absl::Status Forward(const float* x, float* y) override {
    ParallelFor(context_, count_, kElementGrain, [=, this](int64_t begin, int64_t end) {
      const ActivationParams f = params_;
      if (f.kind == Activation::kRelu) {  // without the switch in the loop it vectorises
        for (int64_t i = begin; i < end; ++i) {
          y[i] = x[i] < f.threshold ? f.slope * (x[i] - f.threshold) : std::min(x[i], f.limit);
        }
        return;
      }
      for (int64_t i = begin; i < end; ++i) y[i] = Activate(f, x[i]);
    });
    return absl::OkStatus();
  }

  absl::Status Backward(const float* x, const float* /*y*/, const float* dy, float* dx) override {
    ParallelFor(context_, count_, kElementGrain, [=, this](int64_t begin, int64_t end) {
      const ActivationParams f = params_;
      if (f.is_plain_relu()) {
        for (int64_t i = begin; i < end; ++i) dx[i] = x[i] > 0 ? dy[i] : 0.0f;
        return;
      }
      for (int64_t i = begin; i < end; ++i) dx[i] = dy[i] * ActivationDerivative(f, x[i]);
    });
    return absl::OkStatus();
  }

 private:
  onednn::Context& context_;
  const TensorDesc output_;
  const int64_t count_;
  const ActivationParams params_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<UnaryOp>> MakeActivation(onednn::Context& context, const TensorDesc& input,
                                                        const ActivationParams& params) {
  if (input.num_floats() != input.shape.num_elements() && !params.keeps_zero()) {
    return absl::InvalidArgumentError(
        absl::StrCat("an activation that moves 0 over the padding channels of ", input.ToString()));
  }
  return std::make_unique<CpuActivation>(context, input, params);
}

}  // namespace cairn::kernels::cpu
