#include "nn/layers/channel_scale.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "common/core/status.h"
#include "kernels/ops.h"

namespace cairn::nn {
namespace {

// A frozen batch normalization whose statistics are the constants 0 and 1, without an epsilon.
class ChannelScaleOp final : public LayerOp {
 public:
  static absl::StatusOr<std::unique_ptr<LayerOp>> Create(const ChannelScaleParams& params,
                                                         kernels::Device& device) {
    const kernels::TensorDesc& input = params.input;
    const int64_t channels = input.shape[input.shape.rank() - 1];
    std::unique_ptr<ChannelScaleOp> made(new ChannelScaleOp(params.scale, params.center, channels));
    CAIRN_ASSIGN_OR_RETURN(
        made->op_,
        device.ops().MakeBatchNorm(
            {.input = input, .epsilon = 0, .scale = params.scale, .center = params.center, .frozen = true}));
    CAIRN_ASSIGN_OR_RETURN(made->statistics_, device.Allocate(2 * channels, "statistics of a channel scale"));
    std::vector<float> values(static_cast<size_t>(2 * channels), 1.0f);
    std::fill_n(values.begin(), channels, 0.0f);
    CAIRN_RETURN_IF_ERROR(device.CopyToDevice(values.data(), made->statistics_->data(),
                                              static_cast<int64_t>(values.size() * sizeof(float))));
    CAIRN_RETURN_IF_ERROR(device.Synchronize());
    if (!params.needs_input_gradient) {
      CAIRN_ASSIGN_OR_RETURN(made->unused_,
                             device.Allocate(input.num_floats(), "gradient of a channel scale"));
    }
    return made;
  }

  const kernels::TensorDesc& output() const override { return op_->output(); }
  BackwardReads backward_reads() const override { return {.output = false}; }
  absl::Status Forward(const ForwardArgs& args) override {
    return op_->Infer(args.inputs[0], scale_ ? args.variables.front() : nullptr,
                      center_ ? args.variables.back() : nullptr, mean(), variance(), args.output);
  }
  absl::Status Backward(const BackwardArgs& args) override {
    float* const dx = unused_ == nullptr ? args.input_gradients[0] : unused_->data();
    return op_->Backward(args.inputs[0], scale_ ? args.variables.front() : nullptr, mean(), variance(),
                         args.output_gradient, dx, scale_ ? args.gradients.front() : nullptr,
                         center_ ? args.gradients.back() : nullptr);
  }

 private:
  ChannelScaleOp(bool scale, bool center, int64_t channels)
      : scale_(scale), center_(center), channels_(channels) {}
  const float* mean() const { return statistics_->data(); }
  const float* variance() const { return statistics_->data() + channels_; }

  const bool scale_, center_;
  const int64_t channels_;
  std::unique_ptr<kernels::BatchNorm> op_;
  std::unique_ptr<kernels::DeviceMemory> statistics_;  // means of 0, then variances of 1
  std::unique_ptr<kernels::DeviceMemory> unused_;      // receives dx if it is not needed; otherwise null
};

}  // namespace

absl::StatusOr<std::unique_ptr<LayerOp>> MakeChannelScale(const ChannelScaleParams& params,
                                                          kernels::Device& device) {
  return ChannelScaleOp::Create(params, device);
}

}  // namespace cairn::nn
