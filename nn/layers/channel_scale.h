// y = gamma * x + beta for each channel.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "kernels/device.h"
#include "nn/layer/layer.h"

namespace cairn::nn {

struct ChannelScaleParams {
  kernels::TensorDesc input;  // [..., channels], in any layout that MakeBatchNorm() takes
  bool scale = true, center = false;
  bool needs_input_gradient = true;
};

// Variables: gamma [channels] if it scales, beta [channels] if it centers.
absl::StatusOr<std::unique_ptr<LayerOp>> MakeChannelScale(const ChannelScaleParams& params,
                                                          kernels::Device& device);

}  // namespace cairn::nn
