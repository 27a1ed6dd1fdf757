// The sums of several GPUs by NCCL.
//
// A sum is cut into as many chunks as there are devices; each chunk is reduced to another device, which
// copies it to the host. So every device sends and receives what a reduce-scatter does, (N - 1) / N of the
// sum, which is half of an all-reduce, and the way to the host is N links wide. One group of calls begins the
// reductions on all devices, when what they read is there: no device ever waits for one that has not been
// asked.
//
// Communicators do not block: what NCCL has not done within a limit is given up, and ends on all devices.
// NCCL reduces around rings, in an order of its own, which is the same on every run that finds the same
// links.
#pragma once

#include <chrono>
#include <memory>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/core/clock.h"
#include "kernels/cuda/nccl_library.h"
#include "kernels/device_group.h"

namespace cairn::kernels::cuda {

struct NcclLimits {
  Duration setup = std::chrono::seconds(30);  // to make communicators, and to add up on trial
  Duration call = std::chrono::seconds(30);   // for NCCL to take a sum over
  Duration sum =
      std::chrono::seconds(60);  // for the devices to come to its end: they have nothing else to wait for
};

// Of CUDA's devices of these indices, each once: CreateCudaGroup() of kernels/cuda_backend.h.
absl::StatusOr<std::unique_ptr<DeviceGroup>> MakeNcclGroup(const NcclLibrary& nccl,
                                                           absl::Span<const int> indices,
                                                           const NcclLimits& limits = {});

}  // namespace cairn::kernels::cuda
