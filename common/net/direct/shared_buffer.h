// Floats that other processes of this host can map: what is sent from there, by a stream that shares memory,
// need not be copied by who receives it (stream.h).
//
// Who has mapped it uses it for as long as what the two ends say to each other allows: a gradient until its
// push has been answered. Where that is never said, as when a server cannot be reached any more, Renew() must
// come before the memory is written again: the other end keeps the pages that it has.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/types/span.h"
#include "common/core/file_descriptor.h"
#include "common/net/direct/shared_memory.h"
#include "common/net/frame.h"

namespace cairn::net {

// What a stream tells the other end of, for it to map.
struct SharedRegion {
  uint64_t number = 0;  // from 1; no other region of this process ever has it
  uint64_t address = 0;
  uint64_t bytes = 0;
  FileDescriptor memory;
};

// Stays where it is. Where the system has no memory to share, it is as any other.
class SharedBuffer {
 public:
  // `count` floats, all 0; on pages of its own. Throws OutOfMemory as AlignedBuffer does. Not `shared`: as
  // any other, and Renew() leaves it alone; for memory that is pinned.
  explicit SharedBuffer(int64_t count, bool shared = true);
  ~SharedBuffer();
  SharedBuffer(const SharedBuffer&) = delete;
  SharedBuffer& operator=(const SharedBuffer&) = delete;

  float* data() { return reinterpret_cast<float*>(memory_.data()); }
  const float* data() const { return reinterpret_cast<const float*>(memory_.data()); }
  int64_t size() const { return size_; }
  absl::Span<float> span() { return {data(), static_cast<size_t>(size_)}; }
  absl::Span<const float> span() const { return {data(), static_cast<size_t>(size_)}; }

  // The region in which all of `runs` lie; null when there is none. Any thread.
  static std::shared_ptr<const SharedRegion> RegionOf(FloatSpans runs);
  // Puts other pages, another region with the same contents, at the addresses of the buffer in which `memory`
  // lies; nothing when it lies in none. Nobody may write there meanwhile.
  static void Renew(absl::Span<const float> memory);

 private:
  SharedMemory memory_;
  const int64_t size_;
};

}  // namespace cairn::net
