#include "nn/layers/synchronized_batch_norm.h"

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "common/core/status.h"

namespace cairn::nn {
namespace {

class SynchronizedBatchNorm final : public kernels::BatchNorm {
 public:
  SynchronizedBatchNorm(const kernels::BatchNormParams& params, BatchSync& sync, kernels::Device& device)
      : params_(params),
        sync_(sync),
        device_(device),
        channels_(params.input.shape[params.input.shape.rank() - 1]),
        rows_(params.input.shape.num_elements() / channels_),
        host_(static_cast<size_t>(2 * channels_)) {}

  absl::Status MakeOps() {
    kernels::OpFactory& ops = device_.ops();
    CAIRN_ASSIGN_OR_RETURN(of_device_, ops.MakeBatchNorm(params_));
    CAIRN_ASSIGN_OR_RETURN(
        frozen_, ops.MakeBatchNorm({.input = params_.input, .epsilon = params_.epsilon, .frozen = true}));
    CAIRN_ASSIGN_OR_RETURN(add_, ops.MakeAdd(params_.input, 2));
    const auto allocate = [&](int64_t floats) {
      return device_.Allocate(floats, "synchronized batch normalization");
    };
    CAIRN_ASSIGN_OR_RETURN(sums_, allocate(2 * channels_));
    CAIRN_ASSIGN_OR_RETURN(ones_, allocate(channels_));
    CAIRN_ASSIGN_OR_RETURN(corrected_, allocate(params_.input.num_floats()));
    host_.assign(host_.size(), 1);
    CAIRN_RETURN_IF_ERROR(device_.CopyToDevice(host_.data(), ones_->data(), BytesOf(channels_)));
    return device_.Synchronize();
  }

  const kernels::TensorDesc& output() const override { return of_device_->output(); }

  absl::Status Forward(const float* x, const float* gamma, const float* beta, float* mean, float* variance,
                       float* y) override {
    CAIRN_RETURN_IF_ERROR(of_device_->Forward(x, gamma, beta, mean, variance, y));
    CAIRN_RETURN_IF_ERROR(CombineStatistics(mean, variance));
    return of_device_->Infer(x, gamma, beta, mean, variance, y);
  }

  absl::Status Infer(const float* x, const float* gamma, const float* beta, const float* mean,
                     const float* variance, float* y) override {
    return of_device_->Infer(x, gamma, beta, mean, variance, y);
  }

  // With n = (x - mean) / deviation, and N rows of the whole batch, dx is
  // gamma / deviation * (dy - (sum dy + n sum(dy n)) / N). A frozen op computes gamma / deviation * dy for any dy, and
  // the sums of one device.
  absl::Status Backward(const float* x, const float* gamma, const float* mean, const float* variance,
                        const float* dy, float* dx, float* dgamma, float* dbeta) override {
    const float* const scale = gamma == nullptr ? ones_->data() : gamma;
    float* const of_n = sums_->data();
    float* const of_dy = of_n + channels_;
    float* const corrected = corrected_->data();
    CAIRN_RETURN_IF_ERROR(frozen_->Backward(x, scale, mean, variance, dy, corrected, of_n, of_dy));
    if (dgamma != nullptr) CAIRN_RETURN_IF_ERROR(device_.CopyOnDevice(of_n, dgamma, channels_));
    if (dbeta != nullptr) CAIRN_RETURN_IF_ERROR(device_.CopyOnDevice(of_dy, dbeta, channels_));
    CAIRN_RETURN_IF_ERROR(CombineSums());
    CAIRN_RETURN_IF_ERROR(frozen_->Infer(x, of_n, of_dy, mean, variance, corrected));
    const float* const terms[] = {corrected, dy};
    CAIRN_RETURN_IF_ERROR(add_->Forward(terms, corrected));
    return frozen_->Backward(x, scale, mean, variance, corrected, dx, of_n, of_dy);
  }

 private:
  static int64_t BytesOf(int64_t floats) { return floats * int64_t{sizeof(float)}; }

  absl::Status ToHost(const float* first, const float* second) {
    CAIRN_RETURN_IF_ERROR(device_.CopyToHost(first, host_.data(), BytesOf(channels_)));
    CAIRN_RETURN_IF_ERROR(device_.CopyToHost(second, host_.data() + channels_, BytesOf(channels_)));
    return device_.Synchronize();
  }
  absl::Status FromHost(float* first, float* second) {
    CAIRN_RETURN_IF_ERROR(device_.CopyToDevice(host_.data(), first, BytesOf(channels_)));
    return device_.CopyToDevice(host_.data() + channels_, second, BytesOf(channels_));
  }

  // Replaces the statistics of this device's examples by those of the whole batch.
  absl::Status CombineStatistics(float* mean, float* variance) {
    CAIRN_RETURN_IF_ERROR(ToHost(mean, variance));
    const auto channels = static_cast<size_t>(channels_);
    std::vector<double> means(2 * channels);  // of values, and of squares
    for (size_t c = 0; c < channels; ++c) {
      const double of_values = host_[c];
      means[c] = of_values;
      means[channels + c] = host_[channels + c] + of_values * of_values;
    }
    CAIRN_RETURN_IF_ERROR(sync_.Mean(absl::MakeSpan(means)));
    for (size_t c = 0; c < channels; ++c) {
      host_[c] = static_cast<float>(means[c]);
      const double variance_of_all = means[channels + c] - means[c] * means[c];
      host_[channels + c] = variance_of_all < 0 ? 0.0f : static_cast<float>(variance_of_all);
    }
    return FromHost(mean, variance);
  }

  // Replaces the sums of this device, of dy n and of dy, by the gamma and beta with which Infer() gives the correction
  // of dy. A device has the gradients of the mean loss of its own examples, which are weighted by its share of the
  // examples in the end. So the sums are weighted too, which makes their sum a mean, and the correction is divided by
  // the share: N share is rows_.
  absl::Status CombineSums() {
    CAIRN_RETURN_IF_ERROR(ToHost(sums_->data(), sums_->data() + channels_));
    std::vector<double> sums(host_.begin(), host_.end());
    CAIRN_RETURN_IF_ERROR(sync_.Mean(absl::MakeSpan(sums)));
    for (size_t i = 0; i < sums.size(); ++i)
      host_[i] = static_cast<float>(-sums[i] / static_cast<double>(rows_));
    return FromHost(sums_->data(), sums_->data() + channels_);
  }

  const kernels::BatchNormParams params_;
  BatchSync& sync_;
  kernels::Device& device_;
  const int64_t channels_, rows_;
  std::unique_ptr<kernels::BatchNorm> of_device_, frozen_;
  std::unique_ptr<kernels::NaryOp> add_;
  std::unique_ptr<kernels::DeviceMemory> sums_, ones_;  // [2 channels], [channels]
  std::unique_ptr<kernels::DeviceMemory> corrected_;    // as the input
  std::vector<float> host_;                             // [2 channels]
};

}  // namespace

absl::StatusOr<std::unique_ptr<kernels::BatchNorm>> MakeSynchronizedBatchNorm(
    const kernels::BatchNormParams& params, BatchSync& sync, kernels::Device& device) {
  auto made = std::make_unique<SynchronizedBatchNorm>(params, sync, device);
  CAIRN_RETURN_IF_ERROR(made->MakeOps());
  return made;
}

}  // namespace cairn::nn
