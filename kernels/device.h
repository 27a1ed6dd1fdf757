// A device that computes: its memory and the operations it offers. One implementation per backend
// (kernels/cpu, kernels/cuda); everything above talks to this interface.
//
// Whoever builds a replica owns the device and outlives everything made from it. One thread at a time uses a
// device and its ops; two devices are independent. Work may be asynchronous: operations and copies of one
// device take effect in the order of the calls, and host memory given to them must stay valid and untouched
// until Synchronize() returns. The CPU backend is synchronous.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/core/shape.h"

namespace cairn::kernels {

// How an activation lies in memory. Row-major is the logical shape, [n, h, w, c] for images, and what enters
// and leaves a network; ops choose the blocked forms between themselves where their kernels are fast on them.
enum class Layout {
  kRowMajor,
  kBlocked8,   // [n, ceil(c/8), h, w, 8], padding channels are 0
  kBlocked16,  // [n, ceil(c/16), h, w, 16], padding channels are 0
};

// Channels that lie together: 1, 8 or 16.
int64_t BlockOf(Layout layout);

// An activation's logical shape, batch first, channels last, and its layout. Blocked layouts need rank 4.
struct TensorDesc {
  Shape shape;
  Layout layout = Layout::kRowMajor;

  // Floats it occupies, padding channels included.
  int64_t num_floats() const;
  std::string ToString() const;  // "[64,28,28,1]" or "[64,26,26,32] blocked16"

  friend bool operator==(const TensorDesc& a, const TensorDesc& b) {
    return a.shape == b.shape && a.layout == b.layout;
  }
};

// Owns memory on a device; freed with it.
class DeviceMemory {
 public:
  virtual ~DeviceMemory() = default;
  virtual float* data() = 0;  // device memory
  virtual int64_t num_floats() const = 0;
};

class OpFactory;

class Device {
 public:
  virtual ~Device() = default;

  // "/cpu:0"
  virtual const std::string& name() const = 0;
  // What a person is told at start: model of the processor, instruction set, threads, memory.
  virtual std::string Description() const = 0;

  // Zeroed memory. `what` ("layer conv2d: output") stands in the error: RESOURCE_EXHAUSTED with the bytes
  // asked, in use, and the limit.
  virtual absl::StatusOr<std::unique_ptr<DeviceMemory>> Allocate(int64_t num_floats,
                                                                 absl::string_view what) = 0;

  virtual absl::Status CopyToDevice(const void* host, void* device, int64_t bytes) = 0;
  virtual absl::Status CopyToHost(const void* device, void* host, int64_t bytes) = 0;
  // Copies `count` floats within the device's memory.
  virtual absl::Status CopyOnDevice(const float* from, float* to, int64_t count) = 0;
  // Blocks until everything asked of this device is done; reports errors of asynchronous work.
  virtual absl::Status Synchronize() = 0;

  // True when a pointer to host memory can be given wherever device memory is asked (the CPU): then
  // parameters and gradients are used in place and never copied.
  virtual bool host_memory_is_device_memory() const = 0;

  // The operations of this backend. Lives as long as the device.
  virtual OpFactory& ops() = 0;
};

}  // namespace cairn::kernels
