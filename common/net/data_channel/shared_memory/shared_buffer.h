// A buffer of floats that other processes of this host can map. A payload in it, sent over a stream that
// shares memory, need not be copied by the receiver (stream.h).
//
// The receiver uses a mapped payload for as long as the protocol of the two ends allows: a gradient until its
// push has been answered. If that answer never comes, for example because the server cannot be reached any
// more, Renew() must be called before the memory is written again: the other end keeps the old pages.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/types/span.h"
#include "common/core/file_descriptor.h"
#include "common/net/data_channel/shared_memory/shared_memory.h"
#include "common/net/wire/frame.h"

namespace cairn::net {

// A region that a stream announces to the other end for mapping.
struct SharedRegion {
  uint64_t number = 0;  // from 1; never reused in this process
  uint64_t address = 0;
  uint64_t bytes = 0;
  FileDescriptor memory;
};

// The memory never moves. If the system has no memory to share, the buffer is ordinary memory.
class SharedBuffer {
 public:
  // Allocates `count` floats, all 0, on pages of their own. Throws OutOfMemory as AlignedBuffer does. With
  // `shared` false it is ordinary memory that Renew() leaves alone: for memory that a device has pinned.
  explicit SharedBuffer(int64_t count, bool shared = true);
  ~SharedBuffer();
  SharedBuffer(const SharedBuffer&) = delete;
  SharedBuffer& operator=(const SharedBuffer&) = delete;

  float* data() { return reinterpret_cast<float*>(memory_.data()); }
  const float* data() const { return reinterpret_cast<const float*>(memory_.data()); }
  int64_t size() const { return size_; }
  absl::Span<float> span() { return {data(), static_cast<size_t>(size_)}; }
  absl::Span<const float> span() const { return {data(), static_cast<size_t>(size_)}; }

  // The region that contains all of `runs`; null if there is none. Any thread.
  static std::shared_ptr<const SharedRegion> RegionOf(FloatSpans runs);
  // Replaces the pages of the buffer that contains `memory` by other pages with the same contents, at the
  // same addresses: a new region. Does nothing if no buffer contains it. No thread may write to the buffer
  // during the call.
  static void Renew(absl::Span<const float> memory);

 private:
  SharedMemory memory_;
  const int64_t size_;
};

}  // namespace cairn::net
