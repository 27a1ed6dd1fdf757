// Zero-initialized, 64-byte-aligned memory for floats. Move-only; the size is constant.
//
// A buffer of 4 KiB or more has whole pages to itself, so that it can be pinned. A buffer of 2 MiB or more
// asks for huge pages, which doubled the measured memory bandwidth.
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
  // `count` floats, all 0. Throws OutOfMemory (out_of_memory.h) if the system has no memory or if `count` is
  // negative, which means that its computation overflowed.
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
