// Memory that several processes map. It has no name, so nothing is left of it when all of them are gone,
// however they went. Its size is sealed: nobody can take pages away from under another.
#pragma once

#include <cstddef>
#include <utility>

#include "absl/status/statusor.h"
#include "common/core/file_descriptor.h"

namespace cairn::net {

// Move-only; what it maps stays where it is.
class SharedMemory {
 public:
  enum class Access { kRead, kWrite };
  // `bytes` of zeros, or up to a page more, allocated; on huge pages where it is large and the system has
  // them. `others`: what other processes may do there. UNAVAILABLE when it cannot be had.
  static absl::StatusOr<SharedMemory> Create(size_t bytes, Access others);
  // The same without a descriptor, so for this process alone. Aborts when the system has no memory.
  static SharedMemory Alone(size_t bytes);
  // All of what came from another process. INVALID_ARGUMENT when it is not sealed, or not of whole pages,
  // at most so many bytes.
  static absl::StatusOr<SharedMemory> Open(FileDescriptor memory, Access access, size_t most_bytes);

  ~SharedMemory();
  SharedMemory(SharedMemory&& other) noexcept
      : descriptor_(std::move(other.descriptor_)),
        data_(std::exchange(other.data_, nullptr)),
        size_(std::exchange(other.size_, 0)) {}
  SharedMemory& operator=(SharedMemory&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }

  char* data() const { return data_; }
  size_t size() const { return size_; }
  // For other processes to open.
  const FileDescriptor& descriptor() const { return descriptor_; }
  FileDescriptor TakeDescriptor() { return std::exchange(descriptor_, FileDescriptor()); }

  // Lies where `other`, of the same size, does, which then lies nowhere. What is written there during the
  // call may be lost.
  void TakePlaceOf(SharedMemory& other);

 private:
  static absl::StatusOr<SharedMemory> MapAll(FileDescriptor memory, size_t size, Access access);
  SharedMemory(FileDescriptor descriptor, char* data, size_t size)
      : descriptor_(std::move(descriptor)), data_(data), size_(size) {}

  FileDescriptor descriptor_;
  char* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace cairn::net
