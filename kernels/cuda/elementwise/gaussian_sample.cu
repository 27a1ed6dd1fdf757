// Samples of normal distributions, and their divergence from the standard one.
#include <utility>

#include "common/core/status.h"
#include "kernels/cuda/blocks/host_sum.h"
#include "kernels/cuda/blocks/launch.h"
#include "kernels/cuda/blocks/reduce.h"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/runtime/context.h"
#include "kernels/formulas.h"

namespace cairn::kernels::cuda {
namespace {

// One thread for each element, grid-strided. Blocks write their sums to `partials` [blocks], and the last block adds
// them and writes the host's `penalty`. Deterministic.
__global__ void Sample(GaussianSampleParams params, GaussianSample::Inputs in, float* y, double* partials,
                       unsigned* counter, double* penalty) {
  double sum = 0;
  for (int64_t i = CAIRN_GLOBAL_THREAD; i < params.elements; i += CAIRN_GLOBAL_THREADS) {
    const float mean = in.mean[i], log_variance = in.log_variance[i];
    y[i] = in.noise == nullptr ? mean : SampleOf(mean, log_variance, in.noise[i]);
    sum += SampleDivergence(mean, log_variance);
  }
  if (SumOverGrid(sum, partials, counter))
    *penalty = params.kl_factor == 0 ? 0 : double{params.kl_factor} * sum;
}

// One thread for each element, grid-strided. `dmean` and `dlog_variance` may be null. Deterministic.
__global__ void SampleBackward(GaussianSampleParams params, GaussianSample::Inputs in, const float* dy,
                               float* dmean, float* dlog_variance) {
  for (int64_t i = CAIRN_GLOBAL_THREAD; i < params.elements; i += CAIRN_GLOBAL_THREADS) {
    if (dmean != nullptr) dmean[i] = SampleMeanGradient(params.kl_factor, in.mean[i], dy[i]);
    if (dlog_variance == nullptr) continue;
    const float noise = in.noise == nullptr ? 0.0f : in.noise[i];
    dlog_variance[i] = SampleVarianceGradient(params.kl_factor, in.log_variance[i], noise, dy[i]);
  }
}

class CudaGaussianSample final : public GaussianSample {
 public:
  CudaGaussianSample(Context& context, const GaussianSampleParams& params, std::unique_ptr<HostSum> sum)
      : context_(context), params_(params), sum_(std::move(sum)) {}

  absl::Status Forward(const Inputs& inputs, float* y, double* penalty) override {
    CAIRN_RETURN_IF_ERROR(CAIRN_LAUNCH(Sample, sum_->grid(), kBlock, 0, context_.stream(), params_, inputs, y,
                                       sum_->partials(), sum_->counter(), sum_->result()));
    sum_->ExpectAt(penalty);
    return absl::OkStatus();
  }
  absl::Status Backward(const Inputs& inputs, const float* dy, float* dmean, float* dlog_variance) override {
    return CAIRN_LAUNCH(SampleBackward, sum_->grid(), kBlock, 0, context_.stream(), params_, inputs, dy,
                        dmean, dlog_variance);
  }

 private:
  Context& context_;
  const GaussianSampleParams params_;
  const std::unique_ptr<HostSum> sum_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<GaussianSample>> MakeGaussianSample(Context& context,
                                                                   const GaussianSampleParams& params) {
  CAIRN_RETURN_IF_ERROR(Validate(params));
  CAIRN_ASSIGN_OR_RETURN(auto sum, HostSum::Create(context, params.elements));
  return std::make_unique<CudaGaussianSample>(context, params, std::move(sum));
}

}  // namespace cairn::kernels::cuda
