// Standardization by a given mean and variance: Keras' Normalization.
#include "kernels/standardize.h"

#include <utility>

#include "common/core/status.h"
#include "kernels/cpu/ops.h"
#include "kernels/cpu/parallel.h"

namespace cairn::kernels::cpu {
namespace {

class CpuStandardize final : public Standardize {
 public:
  CpuStandardize(onednn::Context& context, const StandardizeParams& params)
      : context_(context), params_(params) {}

  const TensorDesc& output() const override { return params_.input; }

  absl::Status Forward(const float* x, const float* mean, const float* variance, float* y) override {
    ForEach([=, this](int64_t i, int64_t column) {
      y[i] = Standardized(x[i], mean[column], variance[column], params_.epsilon, params_.invert);
    });
    return absl::OkStatus();
  }

  absl::Status Backward(const float* variance, const float* dy, float* dx) override {
    ForEach([=, this](int64_t i, int64_t column) {
      dx[i] = StandardizedGradient(dy[i], variance[column], params_.epsilon, params_.invert);
    });
    return absl::OkStatus();
  }

 private:
  template <typename Body>
  void ForEach(const Body& body) const {
    const int64_t width = params_.width, rows = params_.input.shape.num_elements() / width;
    ParallelFor(context_, rows, 1 + kElementGrain / width, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        for (int64_t column = 0; column < width; ++column) body(row * width + column, column);
      }
    });
  }

  onednn::Context& context_;
  const StandardizeParams params_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Standardize>> MakeStandardize(onednn::Context& context,
                                                             const StandardizeParams& params) {
  CAIRN_RETURN_IF_ERROR(Validate(params));
  return std::make_unique<CpuStandardize>(context, params);
}

}  // namespace cairn::kernels::cpu
