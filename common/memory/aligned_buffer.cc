#include "common/memory/aligned_buffer.h"

#include <sys/mman.h>

#include <cstdlib>
#include <cstring>

#include "common/memory/out_of_memory.h"

namespace cairn {
namespace {
constexpr size_t kPage = size_t{4} << 10;
constexpr size_t kHugePage = size_t{2} << 20;
}  // namespace

AlignedBuffer::AlignedBuffer(int64_t count) : size_(count) {
  constexpr int64_t kMaxFloats = int64_t{1} << 60;  // the size in bytes can still be rounded up
  if (count < 0 || count > kMaxFloats) throw OutOfMemory(count);
  if (count == 0) return;
  size_t bytes = static_cast<size_t>(count) * sizeof(float);
  const bool huge = bytes >= kHugePage;
  const size_t alignment = huge ? kHugePage : bytes >= kPage ? kPage : kAlignment;
  bytes = (bytes + alignment - 1) / alignment * alignment;
  data_ = static_cast<float*>(std::aligned_alloc(alignment, bytes));
  if (data_ == nullptr) throw OutOfMemory(count);
  if (huge) madvise(data_, bytes, MADV_HUGEPAGE);
  std::memset(data_, 0, bytes);
}

AlignedBuffer::~AlignedBuffer() {
  std::free(data_);
}

}  // namespace cairn
