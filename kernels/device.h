// A device that computes: its memory and the operations it offers. There is one implementation per backend
// (kernels/cpu, kernels/cuda); everything above talks to this interface.
//
// The builder of a replica owns the device, and must outlive everything made from it. A device and its ops
// are used by the thread that made the device; two devices are independent. Work may be asynchronous:
// operations and copies of one device take effect in the order of the calls, except that copies to the host
// run concurrently with the work that follows them. Until Synchronize() returns, the source of such a copy
// must not be written, and host memory given to any copy must stay valid and untouched. The CPU backend is
// synchronous.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/core/shape.h"
#include "common/core/tensor_view.h"

namespace cairn::kernels {

// The memory layout of an activation. Row-major is the logical shape, [n, h, w, c] for images, and the layout
// of a network's inputs and outputs. Between themselves, ops choose the blocked layouts on which their
// kernels are fast.
enum class Layout {
  kRowMajor,
  kBlocked8,   // [n, ceil(c/8), h, w, 8], padding channels are 0
  kBlocked16,  // [n, ceil(c/16), h, w, 16], padding channels are 0
};

// The number of channels that are adjacent in memory: 1, 8 or 16.
int64_t BlockOf(Layout layout);

// The element type of an activation. The outputs of a network, variables and their gradients are always float32; a
// device of reduced precision keeps the activations between them in 16 bits. A network's inputs are float32, or
// integers that are rows of a table.
using ElementType = DType;

// An activation's logical shape (batch first, channels last), layout and element type. Blocked layouts need
// rank 4.
struct TensorDesc {
  Shape shape;
  Layout layout = Layout::kRowMajor;
  ElementType type = ElementType::kFloat32;

  // The memory it occupies, in units of a float, padding channels included.
  int64_t num_floats() const;
  // Row-major float32, as on the host.
  bool is_plain() const { return layout == Layout::kRowMajor && type == ElementType::kFloat32; }
  // The same elements with another shape. Only for row-major.
  TensorDesc WithShape(Shape other) const;
  std::string ToString() const;  // "[64,28,28,1]", "[64,26,26,32] blocked16" or "[64,128] int64"

  friend bool operator==(const TensorDesc& a, const TensorDesc& b) {
    return a.shape == b.shape && a.layout == b.layout && a.type == b.type;
  }
};

// Owns memory on a device and frees it.
class DeviceMemory {
 public:
  virtual ~DeviceMemory() = default;
  virtual float* data() = 0;  // device memory
  virtual int64_t num_floats() const = 0;
};

// Pins host memory while it exists: the device copies from and to it at full speed, even while it computes.
class PinnedMemory {
 public:
  virtual ~PinnedMemory() = default;
};

// A point in the order of a device's work, for which the host can wait.
class Marker {
 public:
  virtual ~Marker() = default;
  // Sets the point after all work and copies to the host that have been requested so far.
  virtual absl::Status Set() = 0;
  // Blocks until the work before the point is done. After Set() has returned, any thread may call it.
  virtual absl::Status Wait() = 0;
};

// Recorded work that is repeated as a whole by one call.
class Recording {
 public:
  virtual ~Recording() = default;
  virtual absl::Status Run() = 0;
};

class OpFactory;

class Device {
 public:
  virtual ~Device() = default;

  // "/cpu:0"
  virtual const std::string& name() const = 0;
  // A description for the user, logged at start: processor model, instruction set, threads, memory.
  virtual std::string Description() const = 0;

  // Allocates zeroed memory. `what` ("layer conv2d: output") appears in the error: RESOURCE_EXHAUSTED with
  // the bytes requested, in use, and the limit.
  virtual absl::StatusOr<std::unique_ptr<DeviceMemory>> Allocate(int64_t num_floats,
                                                                 absl::string_view what) = 0;

  virtual absl::Status CopyToDevice(const void* host, void* device, int64_t bytes) = 0;
  virtual absl::Status CopyToHost(const void* device, void* host, int64_t bytes) = 0;
  // Copies `count` floats within the device's memory.
  virtual absl::Status CopyOnDevice(const float* from, float* to, int64_t count) = 0;
  // Blocks until all requested work is done; returns the errors of asynchronous work.
  virtual absl::Status Synchronize() = 0;

  // Seeds the random operations (dropout) that are requested from now on. Random numbers depend on `seed` and
  // on the index of an example in the worker's batch; `first_example` is the index of this device's first
  // example. So the result does not depend on how the batch is divided among devices.
  virtual absl::Status SeedRandom(uint64_t seed, int64_t first_example) = 0;

  // The three functions below return null if the device gains nothing from them, because its memory is the
  // host's.

  // `host` must not move or be freed while the result exists. RESOURCE_EXHAUSTED if the system refuses more.
  virtual absl::StatusOr<std::unique_ptr<PinnedMemory>> Pin(const void* host, int64_t bytes) = 0;
  virtual absl::StatusOr<std::unique_ptr<Marker>> MakeMarker() = 0;
  // Records `work`, which may request operations, copies within the device and to pinned host memory, and set
  // markers; nothing is executed. All memory that it uses must stay in place while the recording exists.
  virtual absl::StatusOr<std::unique_ptr<Recording>> Record(absl::FunctionRef<absl::Status()> work) = 0;

  // True if a pointer to host memory can be passed wherever device memory is expected (the CPU). Parameters
  // and gradients are then used in place and never copied.
  virtual bool host_memory_is_device_memory() const = 0;

  // Names the work requested until EndRange() in the vendor's profiler, if there is one. Ranges nest.
  virtual void BeginRange(const char* /*name*/) {}
  virtual void EndRange() {}

  // The element type that linear maps write.
  virtual ElementType compute_type() const = 0;

  // The operations of this backend; owned by the device.
  virtual OpFactory& ops() = 0;
};

}  // namespace cairn::kernels
