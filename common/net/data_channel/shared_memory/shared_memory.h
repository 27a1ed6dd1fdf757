// Memory that several processes map. It has no name, so nothing is left behind when all of them are gone,
// even if they were killed. Its size is sealed: no process can remove pages that another one uses.
#pragma once

#include <cstddef>
#include <utility>

#include "absl/status/statusor.h"
#include "common/core/file_descriptor.h"

namespace cairn::net {

// Move-only; a move does not move the mapping.
class SharedMemory {
 public:
  enum class Access { kRead, kWrite };
  // Allocates `bytes`, rounded up to whole pages, all 0; on huge pages if it is large and the system has
  // them. `others`: what other processes may do with it. UNAVAILABLE if the memory cannot be allocated.
  static absl::StatusOr<SharedMemory> Create(size_t bytes, Access others);
  // Like Create(), but without a descriptor: for this process alone. Throws OutOfMemory.
  static SharedMemory Alone(size_t bytes);
  // Maps all of the memory that another process has passed. INVALID_ARGUMENT if it is not sealed, does not
  // consist of whole pages, or has more than `most_bytes`.
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
  // The descriptor with which other processes open the memory.
  const FileDescriptor& descriptor() const { return descriptor_; }
  FileDescriptor TakeDescriptor() { return std::exchange(descriptor_, FileDescriptor()); }

  // Moves this mapping to the address of `other`, which must have the same size and is empty afterwards.
  // Writes during the call may be lost.
  void MoveFrom(SharedMemory& other);

 private:
  static absl::StatusOr<SharedMemory> MapAll(FileDescriptor memory, size_t size, Access access);
  SharedMemory(FileDescriptor descriptor, char* data, size_t size)
      : descriptor_(std::move(descriptor)), data_(data), size_(size) {}

  FileDescriptor descriptor_;
  char* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace cairn::net
