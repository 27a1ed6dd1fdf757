// A replica on each of several devices, together one: the batch is split among them, example by example and
// as evenly as can be, and their gradients are averaged, weighted by their examples, into one gradient of the
// whole batch. So it does not matter to the servers how many devices a worker has.
//
// Devices that are a kernels::DeviceGroup add up themselves, and one gradient comes to the host, in buckets
// as the backward pass finishes them. Otherwise the host adds up, in the order of the devices.
//
// What dropout fells depends on an example's place in the batch, not on its device. A layer that normalizes
// by the batch does so by its device's part, as Keras' MirroredStrategy does; the batch's mean and variance
// that are pushed are the weighted means of the devices' own.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/device_group.h"
#include "worker/nn/device_thread.h"
#include "worker/nn/loss.h"
#include "worker/nn/model.h"
#include "worker/nn/replica.h"

namespace cairn::nn {

// `model` and the threads, at least one, must outlive it, and `trace`, which may be null, too. `group`: of
// the threads' devices in their order; null: the host adds up. Errors as of Replica::Create() on each; a step
// also ends with the group's, and all later ones then do.
absl::StatusOr<std::unique_ptr<Replica>> MakeMirroredReplica(
    const Model& model, const LossSpec& loss, absl::Span<DeviceThread* const> threads,
    TraceRecorder* trace = nullptr, std::unique_ptr<kernels::DeviceGroup> group = nullptr);

}  // namespace cairn::nn
