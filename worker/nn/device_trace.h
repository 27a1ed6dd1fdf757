// Where a device's work is told of: in the task's timeline, and, by names, in the device vendor's own.
#pragma once

#include "common/core/trace.h"
#include "kernels/device.h"

namespace cairn::nn {

struct DeviceTrace {
  TraceRecorder* recorder = nullptr;  // null: not in the task's timeline
  int device = -1;                    // which of several; -1: the only one

  // Of a device that does what it is asked for later, the host's times tell nothing.
  TraceRecorder* On(const kernels::Device& on) const {
    return on.host_memory_is_device_memory() ? recorder : nullptr;
  }
};

// What the device is asked for from here to the end of the block. `name` as TraceEvent's.
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
