// The flags that select a worker's devices, a part of TrainOptions (options.h). `cairn devices` and other
// commands share some of them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "kernels/cuda_backend.h"

namespace CLI {
class App;
}

namespace cairn::worker {

struct DeviceFlags {
  std::string device = "auto";        // --device auto|NAME: TensorFlow's name of a device
  std::vector<std::string> replicas;  // --devices A,B: a replica on each; empty: one on --device
  bool mirrored = false;              // --mirrored: a replica on each GPU, or else on each CPU device
  bool data_parallel() const { return mirrored || !replicas.empty(); }
  std::vector<std::string> place;  // --place 'LAYERS=DEVICE',...: the last matching rule counts
  // --micro_batches: number of micro-batches per batch, for a model on several devices; 0: four for each
  // device.
  int64_t micro_batches = 0;
  int cpu_devices = 1;                // --cpu_devices: logical devices that share the CPU
  bool allow_soft_placement = false;  // --allow_soft_placement: use the CPU if a device does not exist
  std::string visible_devices;        // --visible_devices 0,2: sets CUDA_VISIBLE_DEVICES; empty: unchanged
  // --precision fp32|tf32|bf16|fp16, --allow_growth and --per_process_gpu_memory_fraction.
  kernels::CudaOptions cuda;
  bool log_device_placement = false;  // --log_device_placement: logs each layer's device
};

// Adds all device flags; they are parsed into `flags`.
void AddDeviceFlags(CLI::App& app, DeviceFlags& flags);
// INVALID_ARGUMENT naming the flags that exclude each other.
absl::Status ValidateDeviceFlags(const DeviceFlags& flags);

// Single flags, for commands that need only these.
void AddCpuDevicesFlag(CLI::App& app, int& cpu_devices);
void AddVisibleDevicesFlag(CLI::App& app, std::string& visible_devices);
void AddSoftPlacementFlag(CLI::App& app, bool& allow_soft_placement);

// Sets CUDA_VISIBLE_DEVICES unless `visible_devices` is empty. CUDA reads the variable when the first device
// is requested. Must not be called while other threads run.
void UseVisibleDevices(const std::string& visible_devices);

}  // namespace cairn::worker
