// What the kernel is told of the bytes that examples are read from, one by one and in any order.
//
// A set that fits the memory easily is fetched from the disk at once, in the background. Of a larger one
// nothing is fetched but what is asked for (left alone, the kernel fetches megabytes around each example),
// and that early, many examples at a time, which a disk serves several times as fast.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/types/span.h"
#include "worker/data/array.h"

namespace cairn::data {

// This machine's, in bytes.
size_t PhysicalMemory();

// Immutable; any thread. Memory that is no file's is none the worse for it.
class ReadAhead {
 public:
  // `parts`: all bytes of the set, once they have been looked through from front to back. The set fits easily
  // where it takes no more than a quarter of `memory` bytes.
  explicit ReadAhead(absl::Span<const SharedBytes> parts, size_t memory = PhysicalMemory());

  // Starts to fetch `bytes`, which lie in one of the parts, and does not wait for them.
  void Fetch(absl::Span<const uint8_t> bytes) const;

 private:
  const bool large_;
};

}  // namespace cairn::data
