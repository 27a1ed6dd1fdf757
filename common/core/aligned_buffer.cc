#include "common/core/aligned_buffer.h"

#include <sys/mman.h>

#include <cstdlib>
#include <cstring>

#include "common/core/status.h"

namespace cairn {
namespace {
constexpr size_t kPage = size_t{4} << 10;
constexpr size_t kHugePage = size_t{2} << 20;
}  // namespace

AlignedBuffer::AlignedBuffer(int64_t count) : size_(count) {
  CAIRN_CHECK(count >= 0);
  if (count == 0) return;
  size_t bytes = static_cast<size_t>(count) * sizeof(float);
  const bool huge = bytes >= kHugePage;
  const size_t alignment = huge ? kHugePage : bytes >= kPage ? kPage : kAlignment;
  bytes = (bytes + alignment - 1) / alignment * alignment;
  data_ = static_cast<float*>(std::aligned_alloc(alignment, bytes));
  CAIRN_CHECK(data_ != nullptr);
  if (huge) madvise(data_, bytes, MADV_HUGEPAGE);
  std::memset(data_, 0, bytes);
}

AlignedBuffer::~AlignedBuffer() {
  std::free(data_);
}

}  // namespace cairn
