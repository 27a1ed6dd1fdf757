// Where a device's work is recorded: in the task's timeline, and as named ranges in the profiler of the
// device's vendor.
#pragma once

#include "common/trace/trace.h"
#include "kernels/device.h"

namespace cairn::nn {

struct DeviceTrace {
  TraceRecorder* recorder = nullptr;  // null: not recorded in the timeline
  int device = -1;                    // its index, if there are several; -1: the only device

  // The recorder, or null for a device that runs work asynchronously: times taken on the host would not
  // describe that work.
  TraceRecorder* On(const kernels::Device& on) const {
    return on.host_memory_is_device_memory() ? recorder : nullptr;
  }
};

// Records the work given to the device from here to the end of the scope. `name` must outlive the recorder,
// like TraceEvent::name.
class DeviceWork {
 public:
  DeviceWork(const DeviceTrace& trace, TraceLane lane, const char* name, kernels::Device& device)
      : device_(device), span_(trace.On(device), lane, name, {.index = trace.device}) {
    device_.BeginRange(name);
  }
  ~DeviceWork() { device_.EndRange(); }
  DeviceWork(const DeviceWork&) = delete;
  DeviceWork& operator=(const DeviceWork&) = delete;

 private:
  kernels::Device& device_;
  const TraceSpan span_;
};

}  // namespace cairn::nn
