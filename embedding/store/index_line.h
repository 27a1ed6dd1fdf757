// A cache line of the index of a store: up to 12 entries, each a tag and the row that it leads to.
//
// The tag is a byte of the key's hash. Entries whose tag matches are compared by the key, which lies in the row: one
// comparison of 16 bytes finds them. An entry that finds its line full lies in a later line, and the lines before it
// count it as overflowed. So a search ends at a line without overflow, and removals leave no tombstones. This is the
// scheme of F14 (Bronson and Shi, "Open-sourcing F14", 2019), with lines in sequence.
#pragma once

#include <bit>
#include <cstdint>
#include <limits>

#ifdef __SSE2__
#include <immintrin.h>
#endif

#include "embedding/store/row_arena.h"

namespace cairn::embedding {

struct alignas(64) IndexLine {
  static constexpr int kEntries = 12;

  uint8_t tags[kEntries];
  uint16_t overflowed;  // entries that passed this line; the largest value stays
  uint16_t used;        // [entry], a bit each
  RowRef rows[kEntries];

  // The used entries with this tag, a bit each.
  uint32_t Matching(uint8_t tag) const {
#ifdef __SSE2__
    const __m128i line = _mm_load_si128(reinterpret_cast<const __m128i*>(this));
    const __m128i equal = _mm_cmpeq_epi8(line, _mm_set1_epi8(static_cast<char>(tag)));
    return static_cast<uint32_t>(_mm_movemask_epi8(equal)) & used;
#else
    uint32_t matching = 0;
    for (int i = 0; i < kEntries; ++i) matching |= static_cast<uint32_t>(tags[i] == tag) << i;
    return matching & used;
#endif
  }

  bool full() const { return used == (1 << kEntries) - 1; }
  // The line is not full.
  void Add(uint8_t tag, RowRef row) {
    const int entry = std::countr_one(used);
    if (entry >= kEntries) __builtin_unreachable();
    tags[entry] = tag;
    rows[entry] = row;
    used = static_cast<uint16_t>(used | 1 << entry);
  }
  void Remove(int entry) { used = static_cast<uint16_t>(used & ~(1 << entry)); }

  void CountPassed() {
    if (overflowed != std::numeric_limits<uint16_t>::max()) ++overflowed;
  }
  void UncountPassed() {
    if (overflowed != std::numeric_limits<uint16_t>::max()) --overflowed;
  }
};
static_assert(sizeof(IndexLine) == 64);

}  // namespace cairn::embedding
