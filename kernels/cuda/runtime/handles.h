// Move-only owners of resources of the CUDA runtime: streams, events, pinned memory, graphs. Their
// destructors neither throw nor abort.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <utility>

#include "absl/status/statusor.h"
#include "kernels/cuda/runtime/status.h"

namespace cairn::kernels::cuda {

// Owns a Handle that `kDestroy` frees; null when empty.
template <typename Handle, auto kDestroy>
class Owned {
 public:
  Owned() = default;
  explicit Owned(Handle handle) : handle_(handle) {}
  ~Owned() {
    if (handle_ != nullptr) static_cast<void>(kDestroy(handle_));
  }
  Owned(Owned&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Owned& operator=(Owned&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  Handle get() const { return handle_; }
  // For calls that make the handle: cudaStreamCreate(stream.out()).
  Handle* out() { return &handle_; }

 private:
  Handle handle_ = nullptr;
};

using Stream = Owned<cudaStream_t, cudaStreamDestroy>;
using Event = Owned<cudaEvent_t, cudaEventDestroy>;
using Graph = Owned<cudaGraph_t, cudaGraphDestroy>;
using GraphExec = Owned<cudaGraphExec_t, cudaGraphExecDestroy>;

// A stream that does not synchronize with the default stream.
inline absl::StatusOr<Stream> MakeStream() {
  Stream stream;
  CAIRN_CUDA(cudaStreamCreateWithFlags(stream.out(), cudaStreamNonBlocking));
  return stream;
}
// An event without timing.
inline absl::StatusOr<Event> MakeEvent() {
  Event event;
  CAIRN_CUDA(cudaEventCreateWithFlags(event.out(), cudaEventDisableTiming));
  return event;
}

// `count` values of host memory that the device can write asynchronously; zeroed.
template <typename T>
class PinnedArray {
 public:
  static absl::StatusOr<PinnedArray> Create(int64_t count) {
    PinnedArray array;
    void* memory = nullptr;
    CAIRN_CUDA(cudaMallocHost(&memory, static_cast<size_t>(count) * sizeof(T)));
    array.memory_ = Owned<void*, cudaFreeHost>(memory);
    for (int64_t i = 0; i < count; ++i) array[i] = T();
    return array;
  }
  T* data() const { return static_cast<T*>(memory_.get()); }
  T& operator[](int64_t i) const { return data()[i]; }

 private:
  Owned<void*, cudaFreeHost> memory_;
};

}  // namespace cairn::kernels::cuda
