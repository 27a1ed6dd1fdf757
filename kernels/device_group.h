// Devices of one process that add up between themselves what lies in the memory of each: GPUs by NCCL
// (kernels/cuda/nccl_group). Devices without such a group have their sums taken by the host.
//
// Made when its devices are there, goes before them. Any thread; sums are begun one at a time. No call takes
// part in what the devices' own threads ask of them: a sum has streams of its own.
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
    absl::Span<float* const> parts;   // [device] in its memory; what is there afterwards is not defined
    absl::Span<const float> weights;  // [device]
    int64_t count = 0;                // at least 1
    float* host = nullptr;            // pinned, or Begin() may wait for the sum
  };

  virtual ~DeviceGroup() = default;
  virtual const std::string& name() const = 0;  // "NCCL 2.28.9"

  // Begins a sum, which `slot` stands for until it has been awaited; slots are counted from 0, and one is
  // used again and again. What writes the parts is done: the host has waited for it. The spans are the
  // call's, the memory stays untouched until the sum has been awaited. Does not wait for the sum; errors are
  // Await()'s.
  virtual void Begin(size_t slot, const Sum& sum) = 0;
  // Blocks until the sum of `slot`, whose Begin() has returned, is on the host. INTERNAL names the call that
  // failed and its device; DEADLINE_EXCEEDED when the devices do not come to an end. After either the group
  // is of no use: every later sum ends with the same status, and no device is left waiting for another.
  virtual absl::Status Await(size_t slot) = 0;
};

}  // namespace cairn::kernels
