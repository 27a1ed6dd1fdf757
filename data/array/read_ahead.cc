#include "data/array/read_ahead.h"

#include <sys/mman.h>
#include <unistd.h>

namespace cairn::data {
namespace {

size_t PageSize() {
  return static_cast<size_t>(sysconf(_SC_PAGESIZE));
}

// The result is ignored, since advice affects only the speed.
void Advise(absl::Span<const uint8_t> bytes, int advice) {
  if (bytes.empty()) return;
  const size_t before = reinterpret_cast<uintptr_t>(bytes.data()) % PageSize();
  madvise(const_cast<uint8_t*>(bytes.data()) - before, bytes.size() + before, advice);
}

size_t TotalSize(absl::Span<const SharedBytes> parts) {
  size_t total = 0;
  for (const SharedBytes& part : parts) total += part.size();
  return total;
}

}  // namespace

size_t PhysicalMemory() {
  return static_cast<size_t>(sysconf(_SC_PHYS_PAGES)) * PageSize();
}

ReadAhead::ReadAhead(absl::Span<const SharedBytes> parts, size_t memory)
    : large_(TotalSize(parts) > memory / 4) {
  for (const SharedBytes& part : parts) Advise(part.span(), large_ ? MADV_RANDOM : MADV_WILLNEED);
}

void ReadAhead::Fetch(absl::Span<const uint8_t> bytes) const {
  if (large_) Advise(bytes, MADV_WILLNEED);
}

}  // namespace cairn::data
