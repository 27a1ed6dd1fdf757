// The gradients of the replicas on several devices as one, weighted by their examples: added up by the host,
// where they lie in its memory, or by the devices themselves (kernels::DeviceGroup). Owned by the replica
// over them.
//
//   Begin() by the thread that asks for a step ─► Add() by each device's thread, variable by variable:
//   whoever is last sees to the sum, and announces it ─► Tell() by the first thread, of each announcement.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/device_group.h"
#include "worker/nn/announcer.h"
#include "worker/nn/device_thread.h"
#include "worker/nn/model.h"

namespace cairn::nn {

class GradientSum {
 public:
  struct Step {
    // [device + 1]: where each one's examples begin, and the end of the last. Devices beyond it have none.
    std::vector<int64_t> begins;
    absl::Span<float> gradients;  // host memory for the sum, [num_parameters()]
    Announcer* announcer = nullptr;

    size_t active() const { return begins.size() - 1; }
    // Of all examples, those of `device`.
    float share(size_t device) const {
      if (device >= active()) return 0;
      return static_cast<float>(static_cast<double>(begins[device + 1] - begins[device]) /
                                static_cast<double>(begins.back()));
    }
  };

  virtual ~GradientSum() = default;
  // Where the replica on `device` writes its gradient, [num_parameters()]: host memory, or the device's own.
  virtual absl::Span<float> part(size_t device) = 0;
  // The step before has ended. What `step` points to stays until this one has.
  virtual absl::Status Begin(Step step) = 0;
  // A variable is final in the part of one more device; once for each that has examples.
  virtual void Add(int variable) = 0;
  // Waits for what was announced as `announced`, and tells of its variables. What `on_gradient` is not told
  // of when it fails is not in the gradient.
  virtual absl::Status Tell(int announced, absl::FunctionRef<void(int variable)> on_gradient) = 0;
};

// By the host, in the order of the devices, whatever comes first: the same bits on every run.
std::unique_ptr<GradientSum> MakeHostGradientSum(const Model& model, size_t devices);

// By `group`, of the devices of `threads` in their order; the threads outlive it. RESOURCE_EXHAUSTED where a
// device lacks the memory for a gradient.
absl::StatusOr<std::unique_ptr<GradientSum>> MakeGroupGradientSum(
    const Model& model, absl::Span<DeviceThread* const> threads, std::unique_ptr<kernels::DeviceGroup> group);

}  // namespace cairn::nn
