// Which devices a worker computes on: those that there are, what a name (device_name.h) means among them, and
// how one is made.
//
// Called by cairn-worker's main thread, before it reaches out to the cluster; MakeDevice() by the thread that
// will use the device.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/net/cluster_spec.h"
#include "kernels/cuda_backend.h"
#include "kernels/device.h"
#include "worker/device_name.h"

namespace cairn::worker {

// Where the CPU's float32 will do: TensorFloat-32 asks for speed, not for less.
bool ComputesOnCpu(kernels::Precision precision);

// The backends, or a test's.
struct DeviceMakers {
  std::function<absl::StatusOr<int>()> count_gpus;  // CountCudaDevices()
  std::function<absl::StatusOr<kernels::CudaDeviceInfo>(int index)> describe_gpu;
  std::function<absl::StatusOr<std::unique_ptr<kernels::Device>>(const kernels::CudaOptions&)> make_gpu;
  std::function<absl::StatusOr<std::unique_ptr<kernels::Device>>(int index, int threads,
                                                                 int64_t memory_limit_bytes)>
      make_cpu;
  // Of these GPUs, which there are two or more of: CreateCudaGroup().
  std::function<absl::StatusOr<std::unique_ptr<kernels::DeviceGroup>>(absl::Span<const int> indices)>
      group_gpus;
  // For sums with other workers' GPUs: CreateCudaPeer().
  std::function<absl::StatusOr<std::unique_ptr<kernels::PeerDevice>>(int index)> peer_gpu{};
};
DeviceMakers TheBackends();

// What the flags say, and where this worker stands.
struct DeviceRequest {
  std::string device = "auto";  // or a DeviceName
  bool allow_soft_placement = false;
  kernels::CudaOptions cuda{};  // but for its index
  int cpu_devices = 1;          // that the CPU is divided into, with its threads and its memory
  int threads = 1;              // of all CPU devices together; each has at least one
  net::TaskId task{};
  int trainer_on_host = 0;  // among the trainers of this machine: they share its GPUs in turn
};

// Logical CPU devices first, then GPUs; complete names.
std::vector<DeviceName> AvailableDevices(const DeviceRequest& request, const DeviceMakers& makers);

struct FoundDevice {
  DeviceName name;                      // complete, of an existing device
  std::string why;                      // "--device says so"
  std::vector<std::string> warnings{};  // that it is not what one would expect
};
// What `text`, "auto" or a name, means here. "auto" and names that leave the type open are a GPU where one is
// usable, else the CPU; of several GPUs each worker of the machine takes another one. INVALID_ARGUMENT
// beginning with `source`, the flag: a device of another task; one that does not exist, with those that do,
// unless `allow_soft_placement` puts /cpu:0 in its place; 16 bits on the CPU.
absl::StatusOr<FoundDevice> FindDevice(absl::string_view text, absl::string_view source,
                                       const DeviceRequest& request, const DeviceMakers& makers);

struct ChosenDevice {
  std::unique_ptr<kernels::Device> device;
  std::vector<std::string> remarks{};   // which, why, and what it is
  std::vector<std::string> warnings{};  // that it is not what one would expect
};

// Makes the device that was found. The backend's error when that cannot be done.
absl::StatusOr<ChosenDevice> MakeDevice(const FoundDevice& found, const DeviceRequest& request,
                                        const DeviceMakers& makers);

// Finds `request.device` and makes it. Where "auto" finds a GPU that cannot be made it is the CPU, with a
// warning.
absl::StatusOr<ChosenDevice> ChooseDevice(const DeviceRequest& request, const DeviceMakers& makers);

}  // namespace cairn::worker
