// Batch normalization by the mean and variance of the whole batch, made of the ops of one device and a BatchSync.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "kernels/device.h"
#include "kernels/ops.h"
#include "nn/layer/batch_sync.h"

namespace cairn::nn {

// `params` are not frozen. `sync` and `device` must outlive the op. The device must not record its work, since the op
// waits for the other parts of the batch.
absl::StatusOr<std::unique_ptr<kernels::BatchNorm>> MakeSynchronizedBatchNorm(
    const kernels::BatchNormParams& params, BatchSync& sync, kernels::Device& device);

}  // namespace cairn::nn
