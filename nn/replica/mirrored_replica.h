// Data parallelism within a worker: a replica on each of several devices. The batch is split by examples, as
// evenly as possible, and the devices' gradients are averaged, weighted by examples, into one gradient of the
// whole batch. The servers therefore do not depend on a worker's number of devices.
//
// If the devices form a kernels::DeviceGroup, they add up the gradients themselves, and one gradient is
// copied to the host in buckets, as the backward pass completes them. Otherwise the host adds them up, in the
// order of the devices.
//
// Dropout depends on an example's index in the batch, not on its device. A layer that normalizes by the batch
// uses its device's examples only, as with Keras' MirroredStrategy, unless it is synchronized (host_batch_sync.h); the
// pushed mean and variance of the batch are the weighted means of the devices' values.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/device_group.h"
#include "nn/model.h"
#include "nn/objective.h"
#include "nn/replica/device_thread.h"
#include "nn/replica/replica.h"

namespace cairn::nn {

// The options of MakeMirroredReplica(), which borrows all but the group. Each may be null.
struct MirroredOptions {
  TraceRecorder* trace = nullptr;
  std::unique_ptr<kernels::DeviceGroup>
      group{};                   // of the devices in their order; null: the host adds gradients up
  BatchSync* workers = nullptr;  // as ReplicaOptions::sync: the other workers of each batch
};

// `model`, the threads, at least one, and what the options borrow must outlive the replica. Errors are those of
// Replica::Create() on each device. If the group fails, the current step and all later steps fail.
absl::StatusOr<std::unique_ptr<Replica>> MakeMirroredReplica(const Model& model, const Objective& objective,
                                                             absl::Span<DeviceThread* const> threads,
                                                             MirroredOptions options = {});

}  // namespace cairn::nn
