// Masks of time steps: which rows differ from a value.
#include <algorithm>
#include <cstdint>
#include <memory>

#include "common/core/status.h"
#include "kernels/cpu/ops.h"
#include "kernels/cpu/parallel.h"
#include "kernels/step_masks.h"

namespace cairn::kernels::cpu {
namespace {

// `Element`: the C++ type of x.
template <typename Element>
class CpuStepMask final : public UnaryOp {
 public:
  CpuStepMask(onednn::Context& context, const StepMaskParams& params)
      : context_(context),
        output_({.shape = {params.input.shape[0]}}),
        width_(params.input.shape[1]),
        masked_(static_cast<Element>(params.masked)) {}

  const TensorDesc& output() const override { return output_; }

  absl::Status Forward(const float* x, float* y) override {
    const auto* const elements = reinterpret_cast<const Element*>(x);
    ParallelFor(
        context_, output_.shape[0], 1 + kElementGrain / width_, [=, this](int64_t begin, int64_t end) {
          for (int64_t step = begin; step < end; ++step) {
            const Element* const row = elements + step * width_;
            y[step] = std::any_of(row, row + width_, [this](Element element) { return element != masked_; })
                          ? 1.0f
                          : 0.0f;
          }
        });
    return absl::OkStatus();
  }
  absl::Status Backward(const float*, const float*, const float*, float*) override {
    return absl::OkStatus();
  }

 private:
  onednn::Context& context_;
  const TensorDesc output_;
  const int64_t width_;
  const Element masked_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<UnaryOp>> MakeStepMask(onednn::Context& context,
                                                      const StepMaskParams& params) {
  CAIRN_RETURN_IF_ERROR(Validate(params));
  const auto make = [&](auto zero) -> std::unique_ptr<UnaryOp> {
    return std::make_unique<CpuStepMask<decltype(zero)>>(context, params);
  };
  return IsInteger(params.input.type) ? WithIntegerType(params.input.type, make) : make(0.0f);
}

}  // namespace cairn::kernels::cpu
