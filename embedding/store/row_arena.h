// The rows of one store: the floats of their values and optimizer slots.
//
// Rows lie without padding in blocks, and never move. A block is 4 KiB at first; each further one has the size of all
// before it, up to 2 MiB, from where on blocks lie on huge pages. A block begins at a cache line, so a row of 16
// floats is one line. Freed rows are used again before new ones. Blocks are freed with the arena.
//
// Owned by a RowStore, which serializes its calls.
#pragma once

#include <bit>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "common/memory/aligned_buffer.h"
#include "embedding/store/page_pool.h"

namespace cairn::embedding {

// Identifies a row of an arena: the number of its block and its place there.
using RowRef = uint32_t;
inline constexpr RowRef kNoRow = ~RowRef{0};

// On each function that only prefetches: GCC 12 takes such a function for one without effect and removes calls of it,
// unless it is inlined first.
#define CAIRN_PREFETCHES __attribute__((always_inline))

class RowArena {
 public:
  // The most floats that a row may have.
  static constexpr int64_t kMaxFloats = 64 << 10;

  // `floats`: values and slots of a row, 1 to kMaxFloats. `pool` must outlive the arena.
  RowArena(int64_t floats, PagePool& pool);

  // Ensures that the next Add() has memory. RESOURCE_EXHAUSTED, without effect, if there is none, or if the arena
  // has as many rows as a RowRef can identify.
  absl::Status MakeRoom() {
    if (free_count_ > 0 || next_ < end_) return absl::OkStatus();
    return AddBlock();
  }
  // A row of zeros. MakeRoom() succeeded since the last Add().
  RowRef Add();
  void Free(RowRef row);

  float* FloatsOf(RowRef row) const {
    return reinterpret_cast<float*>(blocks_[row >> place_bits_] +
                                    static_cast<int64_t>(row & place_mask_) * row_bytes_);
  }

  // Fetches the row into the caches: all of it, or the first kMaxPrefetch bytes, after which the processor
  // continues automatically.
  CAIRN_PREFETCHES void Prefetch(RowRef row) const {
    const char* const begin = reinterpret_cast<const char*>(FloatsOf(row));
    for (int64_t i = 0; i < prefetch_bytes_; i += 64) __builtin_prefetch(begin + i);
    __builtin_prefetch(begin + prefetch_bytes_ - 1);  // the last line, unless rows are aligned to lines
  }

  // Bytes of all blocks.
  int64_t bytes() const { return bytes_; }

 private:
  static constexpr int64_t kMaxPrefetch = 512;

  absl::Status AddBlock();

  const int64_t row_bytes_;
  const int64_t prefetch_bytes_;
  // A RowRef has the number of the block above `place_bits_` bits for the place in the block.
  const int place_bits_;
  const RowRef place_mask_;
  PagePool& pool_;

  std::vector<char*> blocks_;
  std::vector<AlignedBuffer> small_blocks_;  // the memory of those below 2 MiB
  int64_t bytes_ = 0;
  // The unused rows of the last block.
  uint64_t next_ = 0;  // as RowRefs
  uint64_t end_ = 0;
  // The freed rows, as a list: the first float of each has the bits of the next one.
  RowRef first_free_ = 0;
  int64_t free_count_ = 0;
};

}  // namespace cairn::embedding
