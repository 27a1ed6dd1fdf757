// Which device a worker computes on: chooses one by its name (device_name.h), and makes it.
//
// Called once, by cairn-worker's main thread, before it reaches out to the cluster.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/net/cluster_spec.h"
#include "kernels/cuda_backend.h"
#include "kernels/device.h"

namespace cairn::worker {

// Where the CPU's float32 will do: TensorFloat-32 asks for speed, not for less.
bool ComputesOnCpu(kernels::Precision precision);

// What the flags say, and where this worker stands.
struct DeviceRequest {
  std::string device = "auto";  // or a DeviceName
  bool allow_soft_placement = false;
  kernels::CudaOptions cuda{};  // but for its index
  int threads = 1;              // of the CPU
  net::TaskId task{};
  int trainer_on_host = 0;  // among the trainers of this machine: they share its GPUs in turn
};

// The backends, or a test's.
struct DeviceMakers {
  std::function<absl::StatusOr<int>()> count_gpus;  // CountCudaDevices()
  std::function<absl::StatusOr<kernels::CudaDeviceInfo>(int index)> describe_gpu;
  std::function<absl::StatusOr<std::unique_ptr<kernels::Device>>(const kernels::CudaOptions&)> make_gpu;
  std::function<absl::StatusOr<std::unique_ptr<kernels::Device>>(int threads)> make_cpu;
};
DeviceMakers TheBackends();

struct ChosenDevice {
  std::unique_ptr<kernels::Device> device;
  std::vector<std::string> remarks{};   // which, why, and what it is
  std::vector<std::string> warnings{};  // that it is not what one would expect
};

// "auto" is a GPU where one is usable, else the CPU, with a warning where there is a GPU that is not usable.
// INVALID_ARGUMENT names the flag: an explicit device that does not exist, with those that do, unless
// `allow_soft_placement` puts the CPU in its place; 16 bits on the CPU. An explicit device that exists and
// cannot be made is the backend's error.
absl::StatusOr<ChosenDevice> ChooseDevice(const DeviceRequest& request, const DeviceMakers& makers);

}  // namespace cairn::worker
