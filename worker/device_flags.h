// The flags that say where a worker computes: the part of the table in options.h that `cairn devices` and
// other commands share.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "worker/options.h"

namespace CLI {
class App;
}

namespace cairn::worker {

// All of them, into `options`.
void AddDeviceFlags(CLI::App& app, TrainOptions& options);
// INVALID_ARGUMENT naming the flags that do not go together.
absl::Status ValidateDeviceFlags(const TrainOptions& options);

// Single ones, for commands that need no more.
void AddCpuDevicesFlag(CLI::App& app, int& cpu_devices);
void AddVisibleDevicesFlag(CLI::App& app, std::string& visible_devices);
void AddSoftPlacementFlag(CLI::App& app, bool& allow_soft_placement);

// Makes --visible_devices true, unless it is empty. CUDA reads it when the first device is asked for; not
// while other threads run.
void UseVisibleDevices(const std::string& visible_devices);

}  // namespace cairn::worker
