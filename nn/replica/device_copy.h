// A copy of host data in device memory. If the device computes in host memory, nothing is copied and the host
// data itself is used. Use it from the device's thread.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/core/status.h"
#include "kernels/device.h"

namespace cairn::nn {

// Rounds up to an alignment that suits every device.
constexpr int64_t PaddedFloats(int64_t floats) {
  constexpr int64_t kAlignment = 64;
  return (floats + kAlignment - 1) / kAlignment * kAlignment;
}

class DeviceCopy {
 public:
  static absl::StatusOr<DeviceCopy> Create(kernels::Device& device, int64_t num_floats,
                                           absl::string_view what) {
    DeviceCopy copy(device);
    if (!device.host_memory_is_device_memory()) {
      CAIRN_ASSIGN_OR_RETURN(copy.memory_, device.Allocate(num_floats, what));
    }
    return copy;
  }

  // Makes `host` [count] readable by the device, and returns its address there.
  absl::StatusOr<const float*> Upload(const float* host, int64_t count) {
    if (memory_ == nullptr) return host;
    CAIRN_RETURN_IF_ERROR(device_->CopyToDevice(host, memory_->data(), count * int64_t{sizeof(float)}));
    return memory_->data();
  }
  // Where the device writes a result that is then copied to `host`: its own memory, or `host` itself if the
  // device computes in host memory.
  float* Target(float* host) const { return memory_ == nullptr ? host : memory_->data(); }

 private:
  explicit DeviceCopy(kernels::Device& device) : device_(&device) {}

  kernels::Device* device_;
  std::unique_ptr<kernels::DeviceMemory> memory_;
};

}  // namespace cairn::nn
