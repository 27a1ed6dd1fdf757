// A device that computes: its memory and the operations it offers. One implementation per backend
// (kernels/cpu, kernels/cuda); everything above talks to this interface.
//
// Whoever builds a replica owns the device and outlives everything made from it. The thread that made a
// device uses it and its ops; two devices are independent. Work may be asynchronous: operations and copies of
// one device take effect in the order of the calls, but for copies to the host, which go on beside the work
// that follows them; what they read must not be written, and host memory given to any copy must stay valid
// and untouched, until Synchronize() returns. The CPU backend is synchronous.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/functional/function_ref.h"
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

// What an activation's elements are. What enters and leaves a network, variables and their gradients are
// float32 always; a device of reduced precision keeps the activations between in 16 bits.
enum class ElementType { kFloat32, kBFloat16, kFloat16 };

int64_t BytesOf(ElementType type);

// An activation's logical shape, batch first, channels last, its layout and its elements. Blocked layouts
// need rank 4.
struct TensorDesc {
  Shape shape;
  Layout layout = Layout::kRowMajor;
  ElementType type = ElementType::kFloat32;

  // The float-sized pieces of memory it occupies, padding channels included.
  int64_t num_floats() const;
  // Row-major float32, as the host has it.
  bool is_plain() const { return layout == Layout::kRowMajor && type == ElementType::kFloat32; }
  // The same elements under another shape. Row-major.
  TensorDesc WithShape(Shape other) const;
  std::string ToString() const;  // "[64,28,28,1]", "[64,26,26,32] blocked16" or "[64,128] bfloat16"

  friend bool operator==(const TensorDesc& a, const TensorDesc& b) {
    return a.shape == b.shape && a.layout == b.layout && a.type == b.type;
  }
};

// Owns memory on a device; freed with it.
class DeviceMemory {
 public:
  virtual ~DeviceMemory() = default;
  virtual float* data() = 0;  // device memory
  virtual int64_t num_floats() const = 0;
};

// Host memory that the device copies from and to at full speed, and while it computes; no longer so when this
// goes away.
class PinnedMemory {
 public:
  virtual ~PinnedMemory() = default;
};

// A point in the order of a device's work, which the host can wait for.
class Marker {
 public:
  virtual ~Marker() = default;
  // Behind all the work and the copies to the host asked for so far.
  virtual absl::Status Set() = 0;
  // Blocks until what stands before the point is done. After Set() returned any thread may call it.
  virtual absl::Status Wait() = 0;
};

// Work that was asked for once and can be asked for again as a whole, at the cost of one call.
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

  // What is drawn at random by the operations asked for from here on depends on this: on the seed, and on an
  // example's place in the batch that it was drawn for, of which `first_example` is the first one given. So
  // it does not matter how a batch is divided among devices.
  virtual absl::Status SeedRandom(uint64_t seed, int64_t first_example) = 0;

  // The three below return null where the device gains nothing from it: where its memory is the host's.

  // `host` stays where it is until the result goes away. RESOURCE_EXHAUSTED when the system gives no more.
  virtual absl::StatusOr<std::unique_ptr<PinnedMemory>> Pin(const void* host, int64_t bytes) = 0;
  virtual absl::StatusOr<std::unique_ptr<Marker>> MakeMarker() = 0;
  // Runs `work`, which asks for operations, copies within the device and to pinned host memory, and sets
  // markers, without any of it being done. All memory must stay where it is for as long as the recording
  // lives.
  virtual absl::StatusOr<std::unique_ptr<Recording>> Record(absl::FunctionRef<absl::Status()> work) = 0;

  // True when a pointer to host memory can be given wherever device memory is asked (the CPU): then
  // parameters and gradients are used in place and never copied.
  virtual bool host_memory_is_device_memory() const = 0;

  // Names what is asked for until EndRange() in the vendor's profiler, where there is one. They nest.
  virtual void BeginRange(const char* /*name*/) {}
  virtual void EndRange() {}

  // What linear maps write.
  virtual ElementType compute_type() const = 0;

  // The operations of this backend. Lives as long as the device.
  virtual OpFactory& ops() = 0;
};

}  // namespace cairn::kernels
