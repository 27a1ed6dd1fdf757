// Rotates pairs of elements by angles that depend on the step.
#include "kernels/rotary.h"

#include <utility>
#include <vector>

#include "common/core/status.h"
#include "kernels/cpu/ops.h"
#include "kernels/cpu/parallel.h"

namespace cairn::kernels::cpu {
namespace {

class CpuRotary final : public UnaryOp {
 public:
  CpuRotary(onednn::Context& context, const RotaryParams& params)
      : context_(context),
        params_(params),
        half_(static_cast<int64_t>(params.frequencies.size())),
        vectors_(params.input.shape.num_elements() / params.input.shape[0] / params.input.shape[1] / half_ /
                 2),
        factors_(RotaryFactors(params)) {}

  const TensorDesc& output() const override { return params_.input; }
  absl::Status Forward(const float* x, float* y) override { return Rotate(1, x, y); }
  absl::Status Backward(const float*, const float*, const float* dy, float* dx) override {
    return Rotate(-1, dy, dx);
  }

 private:
  absl::Status Rotate(float direction, const float* x, float* y) const {
    CAIRN_ASSIGN_OR_RETURN(const int64_t first_step, FirstRotaryStep(params_));
    const int64_t row = vectors_ * 2 * half_;  // the elements of one step of an example
    const int64_t steps = params_.input.shape[1], all_steps = RotarySteps(params_);
    ParallelFor(context_, params_.input.shape[0] * steps, 1 + kElementGrain / row,
                [=, this](int64_t begin, int64_t end) {
                  for (int64_t i = begin; i < end; ++i) {
                    const float* const cosines = factors_.data() + (first_step + i % steps) * half_;
                    const float* const sines = cosines + all_steps * half_;
                    for (int64_t first = i * row; first < (i + 1) * row; first += 2 * half_)
                      RotateVector(cosines, sines, direction, x + first, y + first);
                  }
                });
    return absl::OkStatus();
  }
  // y may be x.
  void RotateVector(const float* cosines, const float* sines, float direction, const float* x,
                    float* y) const {
    for (int64_t i = 0; i < half_; ++i) {
      const float a = x[i], b = x[half_ + i], cosine = cosines[i], sine = direction * sines[i];
      y[i] = a * cosine - b * sine;
      y[half_ + i] = b * cosine + a * sine;
    }
  }

  onednn::Context& context_;
  const RotaryParams params_;
  const int64_t half_;
  const int64_t vectors_;  // of one step of an example
  const std::vector<float> factors_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<UnaryOp>> MakeRotary(onednn::Context& context, const RotaryParams& params) {
  CAIRN_RETURN_IF_ERROR(Validate(params));
  return std::make_unique<CpuRotary>(context, params);
}

}  // namespace cairn::kernels::cpu
