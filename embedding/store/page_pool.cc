#include "embedding/store/page_pool.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/core/status.h"
#include "common/memory/memory_size.h"
#include "common/memory/out_of_memory.h"

namespace cairn::embedding {
namespace {
// The largest reservation of addresses.
constexpr int64_t kMaxReservedChunks = 32;
}  // namespace

PagePool::~PagePool() {
  for (const Reservation& reservation : reservations_) munmap(reservation.mapped, reservation.bytes);
  if (source_ != nullptr) source_->Give(charged_);
}

absl::Status PagePool::Charge(int64_t bytes) {
  if (source_ != nullptr) CAIRN_RETURN_IF_ERROR(source_->Take(bytes));
  charged_ += bytes;
  return absl::OkStatus();
}

absl::Status PagePool::Reserve() {
  const auto chunks = static_cast<size_t>(std::clamp(chunks_, int64_t{1}, kMaxReservedChunks));
  const size_t bytes = (chunks + 1) * kChunkBytes;  // one more, to align
  void* const mapped =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped == MAP_FAILED) {
    return absl::ResourceExhaustedError(
        absl::StrCat("no memory for ", InGiB(static_cast<double>(bytes)), ": ", std::strerror(errno)));
  }
  reservations_.push_back({mapped, bytes});
  const auto address = reinterpret_cast<uintptr_t>(mapped);
  const uintptr_t aligned = (address + kChunkBytes - 1) / kChunkBytes * kChunkBytes;
  free_begin_ = static_cast<char*>(mapped) + (aligned - address);
  free_end_ = free_begin_ + chunks * kChunkBytes;
  madvise(free_begin_, chunks * kChunkBytes, MADV_HUGEPAGE);  // without huge pages it is only slower
  return absl::OkStatus();
}

absl::StatusOr<char*> PagePool::TakeChunk() {
  if (free_begin_ == free_end_) CAIRN_RETURN_IF_ERROR(Reserve());
  CAIRN_RETURN_IF_ERROR(Charge(kChunkBytes));
  ++chunks_;
  return std::exchange(free_begin_, free_begin_ + kChunkBytes);
}

absl::StatusOr<AlignedBuffer> PagePool::TakeBuffer(int64_t bytes) {
  CAIRN_RETURN_IF_ERROR(Charge(bytes));
  auto buffer = CatchOutOfMemory("rows", [&]() -> absl::StatusOr<AlignedBuffer> {
    return AlignedBuffer(bytes / static_cast<int64_t>(sizeof(float)));
  });
  if (!buffer.ok()) {
    charged_ -= bytes;
    if (source_ != nullptr) source_->Give(bytes);
  }
  return buffer;
}

void PagePool::FreeBuffer(AlignedBuffer buffer) {
  const int64_t bytes = buffer.size() * static_cast<int64_t>(sizeof(float));
  buffer = AlignedBuffer();
  charged_ -= bytes;
  if (source_ != nullptr) source_->Give(bytes);
}

}  // namespace cairn::embedding
