// Resources that the ops of one CUDA device share: streams, memory, scratch memory, and the delivery of small
// results to the host. Owned by the device; outlives its ops; one thread at a time.
//
// All work goes into stream(), in the order of the calls. Copies from and to the host have their own streams,
// ordered by events. Nothing uses the default stream.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kernels/cuda/runtime/handles.h"
#include "kernels/cuda/runtime/memory_pool.h"
#include "kernels/cuda_backend.h"
#include "kernels/device.h"

namespace cairn::kernels::cuda {

class Libraries;  // handles of cuBLAS and cuDNN

// A result or fault that the host receives when the device is done: an op writes it into pinned memory, and
// Deliver() passes it on.
class Delivery {
 public:
  virtual ~Delivery() = default;
  virtual absl::Status Deliver() = 0;
};

class Context {
 public:
  static absl::StatusOr<std::unique_ptr<Context>> Create(const CudaOptions& options);
  ~Context();

  const std::string& name() const { return name_; }  // "/gpu:0"
  Precision precision() const { return options_.precision; }
  // The element type that linear maps write.
  ElementType compute_type() const;
  cudaStream_t stream() const { return stream_.get(); }
  int multiprocessors() const { return multiprocessors_; }
  Libraries& libraries() { return *libraries_; }

  // Allocates zeroed memory.
  absl::StatusOr<std::unique_ptr<DeviceMemory>> Allocate(int64_t num_floats, absl::string_view what);

  // Working memory for any one op while it runs. Grows while ops are made. A block is kept when a larger one
  // replaces it, because recordings contain its address.
  absl::Status ReserveScratch(int64_t bytes);
  void* scratch() const { return scratch_.empty() ? nullptr : scratch_.back()->data(); }
  int64_t scratch_bytes() const { return scratch_.empty() ? 0 : scratch_.back()->num_floats() * 4; }

  // The inputs of the random number generator.
  struct RandomSeed {
    uint64_t seed = 0, first_example = 0;
  };
  // The seed in device memory. An op that draws random numbers calls this when it is made; before the first
  // call a seed is only stored on the host.
  absl::StatusOr<const RandomSeed*> Seed();
  absl::Status SeedRandom(const RandomSeed& seed);

  absl::Status CopyToDevice(const void* host, void* device, int64_t bytes);
  absl::Status CopyToHost(const void* device, void* host, int64_t bytes);
  absl::Status CopyOnDevice(const void* from, void* to, int64_t bytes);

  // The next Synchronize() calls delivery.Deliver(). Within a recording, the Synchronize() after each run of
  // the recording calls it. `delivery` must stay alive until then.
  void Expect(Delivery& delivery) { expected_.push_back(&delivery); }
  // Returns the first fault, after all deliveries have been made.
  absl::Status Synchronize();

  absl::StatusOr<std::unique_ptr<PinnedMemory>> Pin(const void* host, int64_t bytes);
  absl::StatusOr<std::unique_ptr<Marker>> MakeMarker();
  absl::StatusOr<std::unique_ptr<Recording>> Record(absl::FunctionRef<absl::Status()> work);

 private:
  class CudaMarker;
  class CudaRecording;
  class SlabSource;

  explicit Context(const CudaOptions& options);
  absl::Status Open();
  // Makes later work in down_ wait for all work that is in stream_ now.
  absl::Status FollowCompute();
  // Makes later work in stream_ wait for all work that is in down_ now.
  absl::Status JoinDownloads();
  absl::Status UploadSeed();

  const CudaOptions options_;
  const std::string name_;
  int multiprocessors_ = 0;
  // For computation, for copies to the device, for copies to the host.
  Stream stream_, up_, down_;
  Event computed_, uploaded_, downloaded_;
  bool recording_ = false;
  bool down_follows_ = false;  // down_ has work for which stream_ does not wait yet
  std::unique_ptr<SlabSource> slabs_;
  std::unique_ptr<MemoryPool> pool_;
  std::unique_ptr<Libraries> libraries_;
  std::vector<std::unique_ptr<DeviceMemory>> scratch_;  // the last one is in use
  RandomSeed last_seed_;
  std::unique_ptr<DeviceMemory> seed_;  // null until an op calls Seed()
  std::vector<Delivery*> expected_;
};

}  // namespace cairn::kernels::cuda
