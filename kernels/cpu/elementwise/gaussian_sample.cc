// Samples of normal distributions, in the calling thread. Terms of the penalty are added in double precision, in order.
#include "common/core/status.h"
#include "kernels/cpu/ops.h"
#include "kernels/formulas.h"

namespace cairn::kernels::cpu {
namespace {

class CpuGaussianSample final : public GaussianSample {
 public:
  explicit CpuGaussianSample(const GaussianSampleParams& params) : params_(params) {}

  absl::Status Forward(const Inputs& in, float* y, double* penalty) override {
    double divergence = 0;
    for (int64_t i = 0; i < params_.elements; ++i) {
      y[i] = in.noise == nullptr ? in.mean[i] : SampleOf(in.mean[i], in.log_variance[i], in.noise[i]);
      divergence += SampleDivergence(in.mean[i], in.log_variance[i]);
    }
    *penalty = params_.kl_factor == 0 ? 0 : double{params_.kl_factor} * divergence;
    return absl::OkStatus();
  }

  absl::Status Backward(const Inputs& in, const float* dy, float* dmean, float* dlog_variance) override {
    for (int64_t i = 0; i < params_.elements; ++i) {
      if (dmean != nullptr) dmean[i] = SampleMeanGradient(params_.kl_factor, in.mean[i], dy[i]);
      if (dlog_variance == nullptr) continue;
      const float noise = in.noise == nullptr ? 0 : in.noise[i];
      dlog_variance[i] = SampleVarianceGradient(params_.kl_factor, in.log_variance[i], noise, dy[i]);
    }
    return absl::OkStatus();
  }

 private:
  const GaussianSampleParams params_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<GaussianSample>> MakeGaussianSample(const GaussianSampleParams& params) {
  CAIRN_RETURN_IF_ERROR(Validate(params));
  return std::make_unique<CpuGaussianSample>(params);
}

}  // namespace cairn::kernels::cpu
