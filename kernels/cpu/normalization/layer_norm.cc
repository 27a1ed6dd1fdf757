// Layer normalization, row by row; sums in double.
#include <cmath>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/cpu/ops.h"
#include "kernels/cpu/parallel.h"

namespace cairn::kernels::cpu {
namespace {

// The number of rows whose contributions to dgamma and dbeta are summed together.
constexpr int64_t kRows = 64;

class CpuLayerNorm final : public LayerNorm {
 public:
  CpuLayerNorm(onednn::Context& context, const LayerNormParams& params)
      : context_(context),
        params_(params),
        mean_(static_cast<size_t>(params.rows)),
        inverse_deviation_(static_cast<size_t>(params.rows)) {}

  absl::Status Forward(const float* x, const float* gamma, const float* beta, float* y) override {
    const int64_t width = params_.width;
    ParallelFor(context_, params_.rows, kRows, [=, this](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        const float* from = x + row * width;
        float* to = y + row * width;
        double sum = 0, squares = 0;
        if (!params_.rms) {
          for (int64_t j = 0; j < width; ++j) sum += from[j];
        }
        const double mean = params_.rms ? 0 : sum / static_cast<double>(width);
        for (int64_t j = 0; j < width; ++j) squares += (from[j] - mean) * (from[j] - mean);
        const double deviation = std::sqrt(squares / static_cast<double>(width) + params_.epsilon);
        mean_[static_cast<size_t>(row)] = static_cast<float>(mean);
        inverse_deviation_[static_cast<size_t>(row)] = static_cast<float>(1 / deviation);
        for (int64_t j = 0; j < width; ++j) {
          to[j] = Normalized(from[j], row) * (gamma == nullptr ? 1.0f : gamma[j]) +
                  (beta == nullptr ? 0.0f : beta[j]);
        }
      }
    });
    return absl::OkStatus();
  }

  // With n = (x - mean) / deviation and g = gamma dy: dx = (g - mean(g) - n mean(g n)) / deviation, without
  // mean(g) if the mean of x counts as 0.
  absl::Status Backward(const float* x, const float* gamma, const float* dy, float* dx, float* dgamma,
                        float* dbeta) override {
    const int64_t width = params_.width;
    ParallelFor(context_, params_.rows, kRows, [=, this](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end && dx != nullptr; ++row) {
        const float* from = x + row * width;
        const float* gradient = dy + row * width;
        double sum = 0, product = 0;
        for (int64_t j = 0; j < width; ++j) {
          const float g = gradient[j] * (gamma == nullptr ? 1.0f : gamma[j]);
          sum += g;
          product += g * Normalized(from[j], row);
        }
        const auto mean_g = params_.rms ? 0.0f : static_cast<float>(sum / static_cast<double>(width));
        const auto mean_gn = static_cast<float>(product / static_cast<double>(width));
        for (int64_t j = 0; j < width; ++j) {
          const float g = gradient[j] * (gamma == nullptr ? 1.0f : gamma[j]);
          dx[row * width + j] = (g - mean_g - Normalized(from[j], row) * mean_gn) *
                                inverse_deviation_[static_cast<size_t>(row)];
        }
      }
    });
    ParallelFor(context_, width, kRows, [=, this](int64_t begin, int64_t end) {
      for (int64_t j = begin; j < end; ++j) {
        double scale = 0, shift = 0;
        for (int64_t row = 0; row < params_.rows; ++row) {
          scale += dy[row * width + j] * Normalized(x[row * width + j], row);
          shift += dy[row * width + j];
        }
        if (dgamma != nullptr) dgamma[j] = static_cast<float>(scale);
        if (dbeta != nullptr) dbeta[j] = static_cast<float>(shift);
      }
    });
    return absl::OkStatus();
  }

 private:
  float Normalized(float x, int64_t row) const {
    return (x - mean_[static_cast<size_t>(row)]) * inverse_deviation_[static_cast<size_t>(row)];
  }

  onednn::Context& context_;
  const LayerNormParams params_;
  std::vector<float> mean_, inverse_deviation_;  // [row] from the last Forward()
};

}  // namespace

absl::StatusOr<std::unique_ptr<LayerNorm>> MakeLayerNorm(onednn::Context& context,
                                                         const LayerNormParams& params) {
  if (params.rows < 1 || params.width < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("cannot apply layer normalization over [", params.rows, ",", params.width, "]"));
  }
  return std::make_unique<CpuLayerNorm>(context, params);
}

}  // namespace cairn::kernels::cpu
