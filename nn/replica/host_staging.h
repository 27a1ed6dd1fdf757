// Carries a tensor from the device that computes it to its reader: activations forward, their gradients
// backward. If the device computes in host memory, the tensor is read in place; otherwise it is copied to
// host memory while the device does other work. Owned by the stage that computes the tensor. The device's
// thread calls Send(). The reader's thread calls Receive() afterwards; the caller must ensure this order.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "common/core/status.h"
#include "common/memory/aligned_buffer.h"
#include "kernels/device.h"

namespace cairn::nn {

class HostStaging {
 public:
  static absl::StatusOr<HostStaging> Create(kernels::Device& device, int64_t num_floats) {
    HostStaging staging(device, num_floats);
    if (device.host_memory_is_device_memory()) return staging;
    constexpr int64_t kPageFloats = 1024;  // pinned memory must not share a page with other data
    staging.staging_ = AlignedBuffer(num_floats + kPageFloats);
    CAIRN_ASSIGN_OR_RETURN(staging.pinned_,
                           device.Pin(staging.staging_.data(), num_floats * int64_t{sizeof(float)}));
    CAIRN_ASSIGN_OR_RETURN(staging.arrived_, device.MakeMarker());
    return staging;
  }

  // `from` is device memory; it must not change until the reader has read it.
  absl::Status Send(const float* from) {
    if (arrived_ == nullptr) {
      host_ = from;
      return absl::OkStatus();
    }
    host_ = staging_.data();
    CAIRN_RETURN_IF_ERROR(device_->CopyToHost(from, staging_.data(), num_floats_ * int64_t{sizeof(float)}));
    return arrived_->Set();
  }
  // Blocks until the tensor has arrived. Returns host memory.
  absl::StatusOr<const float*> Receive() {
    if (arrived_ != nullptr) CAIRN_RETURN_IF_ERROR(arrived_->Wait());
    return host_;
  }

 private:
  HostStaging(kernels::Device& device, int64_t num_floats) : device_(&device), num_floats_(num_floats) {}

  kernels::Device* device_;
  int64_t num_floats_;
  AlignedBuffer staging_;
  std::unique_ptr<kernels::PinnedMemory> pinned_;
  std::unique_ptr<kernels::Marker> arrived_;
  const float* host_ = nullptr;
};

}  // namespace cairn::nn
