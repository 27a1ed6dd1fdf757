// Devices of one process that sum data among themselves: GPUs over NCCL (kernels/cuda/nccl_group). For
// devices without such a group, the host computes the sums.
//
// Created after its devices and destroyed before them. Any thread; sums are begun one at a time. A sum has
// its own streams, so it is not ordered with the work that the devices' own threads request.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/types/span.h"

namespace cairn::kernels {

class DeviceGroup {
 public:
  // host[i] = the sum over all devices d of weights[d] * parts[d][i], for i in [0, count).
  struct Sum {
    absl::Span<float* const> parts;   // [device] in the device's memory; undefined after the sum
    absl::Span<const float> weights;  // [device]
    int64_t count = 0;                // at least 1
    float* host = nullptr;            // pinned; otherwise Begin() may wait for the sum
  };

  virtual ~DeviceGroup() = default;
  virtual const std::string& name() const = 0;  // "NCCL 2.28.9"

  // Begins a sum in `slot`, which is occupied until Await() has returned. Slots are numbered from 0 and
  // reused. The host must have waited for the work that writes the parts. The spans are only used during the
  // call; the memory must stay untouched until Await() has returned. Does not wait for the sum; errors are
  // returned by Await().
  virtual void Begin(size_t slot, const Sum& sum) = 0;
  // Blocks until the sum of `slot`, whose Begin() has returned, is on the host. INTERNAL names the call that
  // failed and its device; DEADLINE_EXCEEDED if the devices do not finish. After either error the group is
  // unusable: every later sum ends with the same status, and no device is left waiting for another.
  virtual absl::Status Await(size_t slot) = 0;
};

}  // namespace cairn::kernels
