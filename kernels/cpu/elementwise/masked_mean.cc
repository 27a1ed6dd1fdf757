// Means over the steps of a sequence that a mask counts.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <numeric>

#include "common/core/status.h"
#include "kernels/cpu/ops.h"
#include "kernels/cpu/parallel.h"
#include "kernels/step_masks.h"

namespace cairn::kernels::cpu {
namespace {

class CpuMaskedMean final : public NaryOp {
 public:
  CpuMaskedMean(onednn::Context& context, const Shape& input)
      : context_(context), output_({.shape = {input[0], input[2]}}), steps_(input[1]), channels_(input[2]) {}

  const TensorDesc& output() const override { return output_; }

  absl::Status Forward(absl::Span<const float* const> xs, float* y) override {
    ForEachExample([=, this](int64_t example) {
      const float* const mask = xs[1] + example * steps_;
      float* const to = y + example * channels_;
      std::fill_n(to, channels_, 0.0f);
      for (int64_t step = 0; step < steps_; ++step) {
        const float* const from = xs[0] + (example * steps_ + step) * channels_;
        for (int64_t c = 0; c < channels_; ++c) to[c] += from[c] * mask[step];
      }
      const float count = std::accumulate(mask, mask + steps_, 0.0f);
      for (int64_t c = 0; c < channels_; ++c) to[c] /= count;
    });
    return absl::OkStatus();
  }

  absl::Status Backward(absl::Span<const float* const> xs, const float* dy,
                        absl::Span<float* const> dxs) override {
    if (dxs[0] == nullptr) return absl::OkStatus();
    ForEachExample([=, this](int64_t example) {
      const float* const mask = xs[1] + example * steps_;
      const float* const from = dy + example * channels_;
      const float count = std::accumulate(mask, mask + steps_, 0.0f);
      for (int64_t step = 0; step < steps_; ++step) {
        float* const to = dxs[0] + (example * steps_ + step) * channels_;
        for (int64_t c = 0; c < channels_; ++c) to[c] = from[c] * mask[step] / count;
      }
    });
    return absl::OkStatus();
  }

 private:
  template <typename Body>
  void ForEachExample(const Body& body) const {
    ParallelFor(context_, output_.shape[0], 1 + kElementGrain / (steps_ * channels_),
                [&](int64_t begin, int64_t end) {
                  for (int64_t example = begin; example < end; ++example) body(example);
                });
  }

  onednn::Context& context_;
  const TensorDesc output_;
  const int64_t steps_, channels_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<NaryOp>> MakeMaskedMean(onednn::Context& context,
                                                       const MaskedMeanParams& params) {
  CAIRN_RETURN_IF_ERROR(Validate(params));
  return std::make_unique<CpuMaskedMean>(context, params.input.shape);
}

}  // namespace cairn::kernels::cpu
