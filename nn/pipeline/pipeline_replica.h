// One model over several devices: each layer computes where it was placed. A batch passes through the
// devices in micro-batches, so that the devices work at the same time. Activations and their gradients are
// copied from device to device. pipeline_schedule.h defines the order of the work.
//
// The gradient is the gradient of the whole batch's mean loss, summed over the micro-batches. Dropout depends
// on an example's index in the batch. With one micro-batch, a step is the same as on one device. A layer that
// normalizes by the batch uses its micro-batch, as in GPipe; the pushed mean and variance are the weighted
// means over the micro-batches.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "nn/pipeline/pipeline.h"
#include "nn/replica/replica.h"

namespace cairn::nn {

// `options.remote_stages` must be null, and the locations those of one process. Model, threads and trace must
// outlive the replica. Errors are those of Replica::Create() and Pipeline::Create().
absl::StatusOr<std::unique_ptr<Replica>> MakePipelineReplica(const Pipeline::Options& options);

}  // namespace cairn::nn
