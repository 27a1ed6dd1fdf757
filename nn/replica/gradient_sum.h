// The sum of the gradients of the replicas on several devices, weighted by their examples. The host computes
// it in host memory, or the devices do (kernels::DeviceGroup). Owned by the mirrored replica.
//
//   Begin() by the thread that starts a step ─► Add() by each device's thread, variable by variable:
//   the last device makes the sum and announces it ─► Tell() by the first thread, for each announcement.
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
#include "nn/model.h"
#include "nn/replica/device_thread.h"
#include "nn/replica/gradient_queue.h"

namespace cairn::nn {

class GradientSum {
 public:
  struct Step {
    // [device + 1] The start of each device's examples, and the end of the last device's. Devices that are
    // not in the list have no examples.
    std::vector<int64_t> begins;
    absl::Span<float> gradients;  // host memory for the sum, [num_parameters()]
    GradientQueue* gradient_queue = nullptr;

    size_t active() const { return begins.size() - 1; }
    // The fraction of all examples that `device` has.
    float share(size_t device) const {
      if (device >= active()) return 0;
      return static_cast<float>(static_cast<double>(begins[device + 1] - begins[device]) /
                                static_cast<double>(begins.back()));
    }
  };

  virtual ~GradientSum() = default;
  // Where the replica on `device` writes its gradient, [num_parameters()]: host memory, or the device's
  // own memory.
  virtual absl::Span<float> part(size_t device) = 0;
  // The previous step must have ended. What `step` points to must stay valid until this step has ended.
  virtual absl::Status Begin(Step step) = 0;
  // Reports that a variable's gradient is final on one more device. Called once for each device with
  // examples.
  virtual void Add(int variable) = 0;
  // Waits for the sum that was announced as `announced`, and calls `on_gradient` for each of its variables.
  // After an error, the gradient lacks the variables for which `on_gradient` was not called.
  virtual absl::Status Tell(int announced, absl::FunctionRef<void(int variable)> on_gradient) = 0;
};

// The host adds the gradients up, always in the order of the devices, so every run gives the same bits.
std::unique_ptr<GradientSum> MakeHostGradientSum(const Model& model, size_t devices);

// The devices of `group` add the gradients up. The group must consist of the devices of `threads`, in their
// order, and the threads must outlive the GradientSum. RESOURCE_EXHAUSTED if a device lacks the memory for a
// gradient.
absl::StatusOr<std::unique_ptr<GradientSum>> MakeGroupGradientSum(
    const Model& model, absl::Span<DeviceThread* const> threads, std::unique_ptr<kernels::DeviceGroup> group);

}  // namespace cairn::nn
