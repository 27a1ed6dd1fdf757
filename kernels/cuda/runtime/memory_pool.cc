#include "kernels/cuda/runtime/memory_pool.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/core/status.h"
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

namespace cairn::kernels::cuda {
namespace {

int64_t RoundUp(int64_t bytes, int64_t step) {
  return (bytes + step - 1) / step * step;
}

// In tests on a CPU, slabs are host memory, and AddressSanitizer detects writes outside a block.
#if defined(__SANITIZE_ADDRESS__)
void Lock(const char* begin, int64_t bytes) {
  ASAN_POISON_MEMORY_REGION(begin, static_cast<size_t>(bytes));
}
void Unlock(const char* begin, int64_t bytes) {
  ASAN_UNPOISON_MEMORY_REGION(begin, static_cast<size_t>(bytes));
}
#else
void Lock(const char*, int64_t) {}
void Unlock(const char*, int64_t) {}
#endif

}  // namespace

MemoryPool::MemoryPool(Source& source, Options options) : source_(source), options_(std::move(options)) {}

MemoryPool::~MemoryPool() {
  for (const Block& block : blocks_) {
    Unlock(block.begin, block.bytes);
    if (block.first_of_slab) source_.Return(block.begin);
  }
}

absl::StatusOr<void*> MemoryPool::Allocate(int64_t bytes, absl::string_view what) {
  CAIRN_CHECK(bytes >= 0);
  if (bytes > options_.limit_bytes) return Exhausted(bytes, what);
  const int64_t size = RoundUp(std::max<int64_t>(bytes, 1), kAlignment);
  // Best fit, so that large blocks stay whole for large requests.
  auto fit = free_.lower_bound(size);
  if (fit == free_.end()) {
    if (!TakeSlab(size)) return Exhausted(bytes, what);
    fit = free_.lower_bound(size);
  }
  const Blocks::iterator block = fit->second;
  free_.erase(fit);
  if (block->bytes > size) {
    AddFree(blocks_.insert(std::next(block), {.begin = block->begin + size, .bytes = block->bytes - size}));
    block->bytes = size;
  }
  block->free = false;
  used_.emplace(block->begin, block);
  in_use_ += size;
  Unlock(block->begin, RoundUp(bytes, kPadding));
  return block->begin;
}

void MemoryPool::Free(void* memory) {
  const auto used = used_.find(memory);
  CAIRN_CHECK(used != used_.end());
  Blocks::iterator block = used->second;
  used_.erase(used);
  in_use_ -= block->bytes;
  block->free = true;
  Lock(block->begin, block->bytes);
  const auto behind = std::next(block);
  if (behind != blocks_.end() && behind->free && !behind->first_of_slab) {
    RemoveFree(behind);
    Absorb(block, behind);
  }
  if (!block->first_of_slab && std::prev(block)->free) {
    const auto before = std::prev(block);
    RemoveFree(before);
    Absorb(before, block);
    block = before;
  }
  AddFree(block);
}

void MemoryPool::Absorb(Blocks::iterator block, Blocks::iterator behind) {
  block->bytes += behind->bytes;
  blocks_.erase(behind);
}

void MemoryPool::RemoveFree(Blocks::iterator block) {
  auto [entry, end] = free_.equal_range(block->bytes);
  while (entry != end && entry->second != block) ++entry;
  CAIRN_CHECK(entry != end);
  free_.erase(entry);
}

bool MemoryPool::TakeSlab(int64_t bytes) {
  const int64_t enough = RoundUp(bytes, kSlabGrain);
  const int64_t ahead = std::max(last_slab_ * 2, kFirstSlab);
  do {
    // A slab smaller than desired is accepted near the limit, or on a card that others also use.
    for (const int64_t wish : {options_.growth ? std::max(enough, ahead) : enough, enough, bytes}) {
      const int64_t slab = std::min(wish, (options_.limit_bytes - taken_) / kAlignment * kAlignment);
      if (slab < bytes) break;
      auto* const begin = static_cast<char*>(source_.Take(slab));
      if (begin == nullptr) continue;
      Lock(begin, slab);
      AddFree(blocks_.insert(blocks_.end(), {.begin = begin, .bytes = slab, .first_of_slab = true}));
      taken_ += slab;
      last_slab_ = slab;
      return true;
    }
  } while (ReturnIdleSlabs());
  return false;
}

bool MemoryPool::ReturnIdleSlabs() {
  bool any = false;
  for (auto block = blocks_.begin(); block != blocks_.end();) {
    const auto behind = std::next(block);
    if (block->free && block->first_of_slab && (behind == blocks_.end() || behind->first_of_slab)) {
      RemoveFree(block);
      Unlock(block->begin, block->bytes);
      source_.Return(block->begin);
      taken_ -= block->bytes;
      blocks_.erase(block);
      any = true;
    }
    block = behind;
  }
  return any;
}

absl::Status MemoryPool::Exhausted(int64_t bytes, absl::string_view what) const {
  return absl::ResourceExhaustedError(absl::StrCat(
      what, " on ", options_.device, ": ", bytes, " bytes requested, ", in_use_, " bytes in use, ", taken_,
      " taken from the device, the limit is ", options_.limit_bytes, " bytes"));
}

}  // namespace cairn::kernels::cuda
