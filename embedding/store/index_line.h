// A cache line of the index of a store: up to 5 entries, each the hash of a key and the row that it leads to.
//
// HashKey() is a bijection, so equal hashes are equal keys: a search ends in the index, whatever the rows contain. An
// entry that finds its line full lies in a later line, and the lines before it count it as overflowed. So a search ends
// at a line without overflow, and removals leave no tombstones, as in F14 (Bronson and Shi, "Open-sourcing F14", 2019).
#pragma once

#include <bit>
#include <cstdint>
#include <limits>

#include "embedding/store/row_arena.h"

namespace cairn::embedding {

struct alignas(64) IndexLine {
  static constexpr int kEntries = 5;

  uint64_t hashes[kEntries];
  RowRef rows[kEntries];
  uint16_t overflowed;  // entries that passed this line; the largest value stays
  uint8_t used;         // [entry], a bit each

  // The entry with this hash, as a bit; 0: it has none. Without branches, which a search would often mispredict.
  uint32_t Matching(uint64_t hash) const {
    uint32_t matching = 0;
    for (int i = 0; i < kEntries; ++i) matching |= static_cast<uint32_t>(hashes[i] == hash) << i;
    return matching & used;
  }
  // The row with this hash; kNoRow: it is not in this line.
  RowRef Find(uint64_t hash) const {
    const uint32_t matching = Matching(hash);
    return matching == 0 ? kNoRow : rows[std::countr_zero(matching)];
  }

  bool full() const { return used == (1 << kEntries) - 1; }
  // The line is not full.
  void Add(uint64_t hash, RowRef row) {
    const int entry = std::countr_one(used);
    if (entry >= kEntries) __builtin_unreachable();
    hashes[entry] = hash;
    rows[entry] = row;
    used = static_cast<uint8_t>(used | 1 << entry);
  }
  void Remove(int entry) { used = static_cast<uint8_t>(used & ~(1 << entry)); }

  void CountPassed() {
    if (overflowed != std::numeric_limits<uint16_t>::max()) ++overflowed;
  }
  void UncountPassed() {
    if (overflowed != std::numeric_limits<uint16_t>::max()) --overflowed;
  }
};
static_assert(sizeof(IndexLine) == 64);

}  // namespace cairn::embedding
