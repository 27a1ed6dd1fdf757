// Zeroed memory for floats: 64-byte aligned, on pages of its own from 4 KiB up, so that it can be pinned, and
// on huge ones where it is large (they double what the memory bandwidth gives). Move-only; constant size.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "absl/types/span.h"

namespace cairn {

class AlignedBuffer {
 public:
  static constexpr size_t kAlignment = 64;

  AlignedBuffer() = default;
  // `count` floats, all 0. Throws OutOfMemory (out_of_memory.h) where the system has no memory, and for counts
  // below 0, which are products that overflowed.
  explicit AlignedBuffer(int64_t count);
  ~AlignedBuffer();
  AlignedBuffer(AlignedBuffer&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  AlignedBuffer& operator=(AlignedBuffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }

  float* data() { return data_; }
  const float* data() const { return data_; }
  int64_t size() const { return size_; }
  absl::Span<float> span() { return {data_, static_cast<size_t>(size_)}; }
  absl::Span<const float> span() const { return {data_, static_cast<size_t>(size_)}; }

 private:
  float* data_ = nullptr;
  int64_t size_ = 0;
};

}  // namespace cairn
