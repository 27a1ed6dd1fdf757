// Loss scaling: a pass over the input and a pass over the output of the backward pass. The factor is in
// device memory, because a recorded step must read its current value.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/core/status.h"
#include "kernels/cuda/blocks/launch.h"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/runtime/context.h"
#include "kernels/cuda/runtime/handles.h"

namespace cairn::kernels::cuda {
namespace {

// One thread for each element, grid-strided. Deterministic.
__global__ void MultiplyBy(const float* scale, int64_t count, float* values) {
  for (int64_t i = CAIRN_GLOBAL_THREAD; i < count; i += CAIRN_GLOBAL_THREADS) values[i] *= *scale;
}

// One thread for each element, grid-strided. A thread whose result is not finite sets the host's word
// `not_finite`; all such threads write the same value. Deterministic.
__global__ void DivideBy(const float* scale, int64_t count, float* values, uint32_t* not_finite) {
  constexpr float kLargest = 3.402823466e38f;
  for (int64_t i = CAIRN_GLOBAL_THREAD; i < count; i += CAIRN_GLOBAL_THREADS) {
    const float value = values[i] / *scale;
    values[i] = value;
    if (!(fabsf(value) <= kLargest)) *not_finite = 1;
  }
}

class CudaLossScaler final : public LossScaler, public Delivery {
 public:
  CudaLossScaler(Context& context, LossScalerParams params, std::unique_ptr<DeviceMemory> scale,
                 PinnedArray<float> host_scale, PinnedArray<uint32_t> not_finite)
      : context_(context),
        params_(std::move(params)),
        scale_(std::move(scale)),
        host_scale_(std::move(host_scale)),
        not_finite_(std::move(not_finite)) {}

  absl::Status SetScale(float scale) override {
    // An earlier copy may still read host_scale_.
    CAIRN_RETURN_IF_ERROR(context_.Synchronize());
    host_scale_[0] = scale;
    return context_.CopyToDevice(host_scale_.data(), scale_->data(), sizeof(float));
  }

  absl::Status Scale(float* doutputs) override {
    return CAIRN_LAUNCH(MultiplyBy, GridFor(params_.outputs), kBlock, 0, context_.stream(), scale_->data(),
                        params_.outputs, doutputs);
  }

  absl::Status Unscale(float* gradients, bool* finite) override {
    for (const auto& [begin, end] : params_.gradients) {
      CAIRN_RETURN_IF_ERROR(CAIRN_LAUNCH(DivideBy, GridFor(end - begin), kBlock, 0, context_.stream(),
                                         scale_->data(), end - begin, gradients + begin, not_finite_.data()));
    }
    finite_ = finite;
    context_.Expect(*this);
    return absl::OkStatus();
  }

  absl::Status Deliver() override {
    *finite_ = std::exchange(not_finite_[0], 0u) == 0;
    return absl::OkStatus();
  }

 private:
  Context& context_;
  const LossScalerParams params_;
  const std::unique_ptr<DeviceMemory> scale_;  // one float
  PinnedArray<float> host_scale_;
  PinnedArray<uint32_t> not_finite_;
  bool* finite_ = nullptr;  // the destination of the last Unscale()
};

}  // namespace

absl::StatusOr<std::unique_ptr<LossScaler>> MakeLossScaler(Context& context, const LossScalerParams& params) {
  for (const auto& [begin, end] : params.gradients) {
    if (begin >= 0 && begin < end) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("loss scaling: invalid range of gradients: ", begin, " to ", end));
  }
  CAIRN_ASSIGN_OR_RETURN(auto scale, context.Allocate(1, "loss scale"));
  CAIRN_ASSIGN_OR_RETURN(auto host_scale, PinnedArray<float>::Create(1));
  CAIRN_ASSIGN_OR_RETURN(auto not_finite, PinnedArray<uint32_t>::Create(1));
  return std::make_unique<CudaLossScaler>(context, params, std::move(scale), std::move(host_scale),
                                          std::move(not_finite));
}

}  // namespace cairn::kernels::cuda
