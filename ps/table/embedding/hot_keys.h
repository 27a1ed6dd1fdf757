// The keys that occur most often among many, in bounded memory: the Space-Saving algorithm over a sample of the keys.
//
// Metwally, Agrawal, El Abbadi, "Efficient Computation of Frequent and Top-k Elements in Data Streams", ICDT 2005,
// section 3. Of each kStride keys one is counted, at random, and stands for kStride. Every key with more than
// total() / kCounters occurrences is kept, apart from the chance of the sample. Top() reports a
// lower bound: the occurrences counted since the key got its counter.
//
// One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/types/span.h"

namespace cairn::ps {

class HotKeys {
 public:
  static constexpr size_t kCounters = 256;
  // A counted key costs about 30 times as much as a key that is skipped, and less than a row that is updated.
  static constexpr size_t kStride = 32;

  struct Count {
    int64_t key = 0;
    int64_t count = 0;  // estimated
  };

  void Add(absl::Span<const int64_t> keys);
  // At most `most` keys of those that were counted twice, the most frequent first.
  std::vector<Count> Top(size_t most) const;
  // The number of keys that the sample stands for: the sum of all counts.
  int64_t total() const { return total_; }

 private:
  void CountOne(int64_t key);
  // A counter with the least count. Many have it, and it only rises, so a search goes on where the last one ended.
  size_t Least();
  // A random number of keys to skip, kStride - 1 on average.
  size_t NextGap();

  // [counter] A count includes the error: the count of the key that had the counter before.
  std::vector<int64_t> keys_, counts_, errors_;
  absl::flat_hash_map<int64_t, size_t> counters_;  // [key]
  int64_t least_count_ = 0;                        // at most the least count
  size_t next_ = 0;                                // the counter after the last result of Least()
  int64_t total_ = 0;
  size_t skip_ = 0;  // of the next keys
  uint64_t random_ = 1;
};

}  // namespace cairn::ps
