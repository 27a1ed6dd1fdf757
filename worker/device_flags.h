// The flags that select a worker's devices: the part of TrainOptions (options.h) that `cairn devices` and
// other commands share.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "worker/options.h"

namespace CLI {
class App;
}

namespace cairn::worker {

// Adds all device flags; they are parsed into `options`.
void AddDeviceFlags(CLI::App& app, TrainOptions& options);
// INVALID_ARGUMENT naming the flags that exclude each other.
absl::Status ValidateDeviceFlags(const TrainOptions& options);

// Single flags, for commands that need only these.
void AddCpuDevicesFlag(CLI::App& app, int& cpu_devices);
void AddVisibleDevicesFlag(CLI::App& app, std::string& visible_devices);
void AddSoftPlacementFlag(CLI::App& app, bool& allow_soft_placement);

// Sets CUDA_VISIBLE_DEVICES unless `visible_devices` is empty. CUDA reads the variable when the first device
// is requested. Must not be called while other threads run.
void UseVisibleDevices(const std::string& visible_devices);

}  // namespace cairn::worker
