// One model over several devices: each layer computes where it was placed. A batch passes the devices in
// micro-batches, so that they work at the same time; activations and their gradients are copied from device
// to device. The order of the work is pipeline_schedule.h's.
//
// The gradient is that of the whole batch's mean, summed micro-batch by micro-batch; what dropout fells
// depends on an example's place in the batch. With one micro-batch a step is that of one device. A layer that
// normalizes by the batch does so by its micro-batch, as in GPipe; the mean and variance that are pushed are
// the weighted means over the micro-batches.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "worker/nn/device_thread.h"
#include "worker/nn/loss.h"
#include "worker/nn/model.h"
#include "worker/nn/replica.h"

namespace cairn::nn {

// `device_of` [node of the model]: of `threads`, each of which has a node. A batch is divided into
// `micro_batches`, or fewer where it has fewer examples. `model`, the threads and `trace`, which may be null,
// must outlive the replica. Errors as of Replica::Create(); UNIMPLEMENTED for devices that compute in
// float16, which scale the loss of a whole model.
absl::StatusOr<std::unique_ptr<Replica>> MakePipelineReplica(const Model& model, const LossSpec& loss,
                                                             absl::Span<DeviceThread* const> threads,
                                                             absl::Span<const int> device_of,
                                                             int64_t micro_batches,
                                                             TraceRecorder* trace = nullptr);

}  // namespace cairn::nn
