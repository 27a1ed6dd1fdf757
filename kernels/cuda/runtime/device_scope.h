// Restores the calling thread's current CUDA device when it goes out of scope.
#pragma once

#include <cuda_runtime.h>

namespace cairn::kernels::cuda {

class DeviceScope {
 public:
  DeviceScope() { static_cast<void>(cudaGetDevice(&device_)); }
  ~DeviceScope() { static_cast<void>(cudaSetDevice(device_)); }
  DeviceScope(const DeviceScope&) = delete;
  DeviceScope& operator=(const DeviceScope&) = delete;

 private:
  int device_ = 0;
};

}  // namespace cairn::kernels::cuda
