// Which devices a worker computes on: lists the available devices, finds the one that a name (device_name.h)
// refers to, and creates it.
//
// Called by cairn-worker's main thread before it contacts the cluster. MakeDevice() is called by the thread
// that will use the device.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/net/cluster/cluster_spec.h"
#include "kernels/cuda_backend.h"
#include "kernels/device.h"
#include "worker/devices/device_name.h"

namespace cairn::worker {

// The type of the operands of products on the CPU for `precision`: float32 also for TensorFloat-32, which only permits
// lower precision for speed. INVALID_ARGUMENT, "fp16 needs a GPU", if the CPU cannot compute so.
absl::StatusOr<kernels::ElementType> CpuOperands(kernels::Precision precision);

// Functions that count and create devices; tests replace them.
struct DeviceMakers {
  std::function<absl::StatusOr<int>()> count_gpus;  // CountCudaDevices()
  std::function<absl::StatusOr<kernels::CudaDeviceInfo>(int index)> describe_gpu;
  std::function<absl::StatusOr<std::unique_ptr<kernels::Device>>(const kernels::CudaOptions&)> make_gpu;
  std::function<absl::StatusOr<std::unique_ptr<kernels::Device>>(
      int index, int threads, int64_t memory_limit_bytes, kernels::ElementType operands)>
      make_cpu;
  // Groups two or more GPUs: CreateCudaGroup().
  std::function<absl::StatusOr<std::unique_ptr<kernels::DeviceGroup>>(absl::Span<const int> indices)>
      group_gpus{};
  // For sums with other workers' GPUs: CreateCudaPeer().
  std::function<absl::StatusOr<std::unique_ptr<kernels::PeerDevice>>(int index)> peer_gpu{};
};
DeviceMakers TheBackends();

// The devices that the flags request, and this worker's position in the cluster.
struct DeviceRequest {
  std::string device = "auto";  // "auto" or a DeviceName
  bool allow_soft_placement = false;
  kernels::CudaOptions cuda{};  // `index` is not set
  int cpu_devices = 1;          // logical devices that share the CPU, its threads and its memory
  int threads = 1;              // total of all CPU devices, each of which has at least one
  net::TaskId task{};
  int trainer_on_host = 0;  // index among the trainers on this host, which take its GPUs in turn
};

// The complete names of all devices: logical CPU devices first, then GPUs.
std::vector<DeviceName> AvailableDevices(const DeviceRequest& request, const DeviceMakers& makers);

struct FoundDevice {
  DeviceName name;                      // complete; the device exists
  std::string why;                      // "--device requests it"
  std::vector<std::string> warnings{};  // if it is not the device that the user would expect
};
// Resolves `text`, "auto" or a name. "auto" and names without a type select a GPU if one is usable, else the
// CPU; on a host with several GPUs each worker takes a different one. INVALID_ARGUMENT, beginning with
// `source` (the flag): the device is another task's; it does not exist (the message lists the existing
// devices) and `allow_soft_placement`, which would replace it by /cpu:0, is not set; or it is the CPU, and a
// precision is requested that it does not have.
absl::StatusOr<FoundDevice> FindDevice(absl::string_view text, absl::string_view source,
                                       const DeviceRequest& request, const DeviceMakers& makers);

struct ChosenDevice {
  std::unique_ptr<kernels::Device> device;
  std::vector<std::string> remarks{};   // the device, why it was chosen, and its properties
  std::vector<std::string> warnings{};  // if it is not the device that the user would expect
};

// Creates the device that was found. Returns the backend's error if that fails.
absl::StatusOr<ChosenDevice> MakeDevice(const FoundDevice& found, const DeviceRequest& request,
                                        const DeviceMakers& makers);

// Finds `request.device` and creates it. If "auto" finds a GPU that cannot be created, it falls back to the
// CPU with a warning.
absl::StatusOr<ChosenDevice> ChooseDevice(const DeviceRequest& request, const DeviceMakers& makers);

}  // namespace cairn::worker
