// Sums over several GPUs of one process with NCCL.
//
// A sum is cut into as many chunks as there are devices. Each chunk is reduced to a different device, which
// copies it to the host. So every device transfers (N - 1) / N of the sum, as in a reduce-scatter; an
// all-reduce would transfer twice as much. N links carry the result to the host. One NCCL group call begins
// the reductions on all devices once their inputs are ready: no device waits for another device whose
// reduction was not requested.
//
// Communicators are non-blocking: a call that NCCL has not finished within its limit is aborted on all
// devices. NCCL reduces around rings, in its own order, which is the same on every run that finds the same
// links.
#pragma once

#include <chrono>
#include <memory>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/core/clock.h"
#include "kernels/cuda/nccl/nccl_library.h"
#include "kernels/device_group.h"

namespace cairn::kernels::cuda {

struct NcclLimits {
  Duration setup = std::chrono::seconds(30);  // to create communicators and to compute the test sums
  Duration call = std::chrono::seconds(30);   // for NCCL to accept a sum
  // For the devices to finish a sum, in which a device waits only for the other devices.
  Duration sum = std::chrono::seconds(60);
};

// A group of the CUDA devices with these indices, which must be distinct: CreateCudaGroup() in
// kernels/cuda_backend.h.
absl::StatusOr<std::unique_ptr<DeviceGroup>> MakeNcclGroup(const NcclLibrary& nccl,
                                                           absl::Span<const int> indices,
                                                           const NcclLimits& limits = {});

}  // namespace cairn::kernels::cuda
