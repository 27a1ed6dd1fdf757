// What the ops of one CUDA device share: its streams, memory, scratch, and the way of small results to the
// host. Owned by the device, outlives its ops; one thread at a time.
//
// All work goes into stream(), in the order of the calls; copies from and to the host have streams of their
// own and events between. Nothing uses the default stream.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kernels/cuda/handles.h"
#include "kernels/cuda/memory_pool.h"
#include "kernels/cuda_backend.h"
#include "kernels/device.h"

namespace cairn::kernels::cuda {

class Libraries;  // cuBLAS' and cuDNN's handles

// A result, or a fault, that the host learns when the device is done: an op writes it into pinned memory,
// and Deliver() carries it on.
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
  // What linear maps write.
  ElementType compute_type() const;
  cudaStream_t stream() const { return stream_.get(); }
  int multiprocessors() const { return multiprocessors_; }
  Libraries& libraries() { return *libraries_; }

  // Zeroed.
  absl::StatusOr<std::unique_ptr<DeviceMemory>> Allocate(int64_t num_floats, absl::string_view what);

  // Working memory for any one op while it runs. Grows while ops are made; a block once handed out stays, for
  // recordings know its address.
  absl::Status ReserveScratch(int64_t bytes);
  void* scratch() const { return scratch_.empty() ? nullptr : scratch_.back()->data(); }
  int64_t scratch_bytes() const { return scratch_.empty() ? 0 : scratch_.back()->num_floats() * 4; }

  // What random draws depend on.
  struct RandomSeed {
    uint64_t seed = 0, first_example = 0;
  };
  // Device memory. An op that draws asks for it when it is made; until one does, a seed is remembered and not
  // copied.
  absl::StatusOr<const RandomSeed*> Seed();
  absl::Status SeedRandom(const RandomSeed& seed);

  absl::Status CopyToDevice(const void* host, void* device, int64_t bytes);
  absl::Status CopyToHost(const void* device, void* host, int64_t bytes);
  absl::Status CopyOnDevice(const void* from, void* to, int64_t bytes);

  // `delivery` is made by the next Synchronize(), and, within a recording, after each of its runs. It stays
  // alive until then.
  void Expect(Delivery& delivery) { expected_.push_back(&delivery); }
  // The first fault among the deliveries, after all were made.
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
  // What goes into down_ from here on comes after what is in stream_ so far; and the other way round.
  absl::Status FollowCompute();
  absl::Status JoinDownloads();
  absl::Status UploadSeed();

  const CudaOptions options_;
  const std::string name_;
  int multiprocessors_ = 0;
  // Of compute, of copies to the device, of copies to the host.
  Stream stream_, up_, down_;
  Event computed_, uploaded_, downloaded_;
  bool recording_ = false;
  bool down_follows_ = false;  // something was asked of down_ that stream_ does not wait for yet
  std::unique_ptr<SlabSource> slabs_;
  std::unique_ptr<MemoryPool> pool_;
  std::unique_ptr<Libraries> libraries_;
  std::vector<std::unique_ptr<DeviceMemory>> scratch_;  // the last is the one in use
  RandomSeed last_seed_;
  std::unique_ptr<DeviceMemory> seed_;  // null until an op asks for it
  std::vector<Delivery*> expected_;
};

}  // namespace cairn::kernels::cuda
