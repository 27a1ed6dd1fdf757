// Advises the kernel about files from which examples are read one by one, in any order.
//
// A set that fits easily into memory is fetched from disk completely, in the background. In a larger set only
// the requested examples are fetched (by default, the kernel fetches megabytes around each example). They are
// requested early, many at a time, which a disk serves several times as fast.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/types/span.h"
#include "data/array.h"

namespace cairn::data {

// This machine's memory, in bytes.
size_t PhysicalMemory();

// Immutable; any thread. Memory that does not belong to a file is accepted and unaffected.
class ReadAhead {
 public:
  // `parts`: all bytes of the set. Scan them before the construction, since a scan of a large set is slow
  // afterwards. The set fits easily if it takes at most a quarter of `memory` bytes.
  explicit ReadAhead(absl::Span<const SharedBytes> parts, size_t memory = PhysicalMemory());

  // Starts to fetch `bytes`, which must be in one of the parts, without waiting.
  void Fetch(absl::Span<const uint8_t> bytes) const;

 private:
  const bool large_;
};

}  // namespace cairn::data
